# make demo    four nodes here share arrays and solve Himeno, checked bit for bit
# make test    everything that must hold; it ends with the seconds of each step
# make test-all  the same, collectives in all ways of exchange, and what needs release builds and installed packages: the static command, the Debian package, ssh, wheels, notebooks
# make deb     dist/oikaze_VERSION_ARCHITECTURE.deb: the command, manual pages, completions, the library for C
# make wheel   dist/oikaze-VERSION-*.whl: the Python package with the command, the C library and its header
# make soak    the same for hours: 10,000 simulated clusters of each kind, 20,000 with 10^6 registrations, 10^7 additions of 1, 10,000 arrays made and dropped; 1,200 processes killed; 16 jobs tampered with
# make fuzz    hostile bytes against every parser
# make install DESTDIR=… PREFIX=/usr/local    the libraries for C, their header and oikaze.pc; make uninstall removes them
# make bench   Oikaze and its peers side by side (root)
.PHONY: demo test test-all deb wheel soak fuzz install uninstall bench packages packages-bench packages-all

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

# Where Debian keeps ip, ethtool and nft; an ordinary user's PATH lacks it.
export PATH := $(PATH):/usr/sbin:/sbin

# What only the next build after a small change would read. Without it, a build from nothing is faster.
export CARGO_INCREMENTAL ?= 0

CARGO ?= $(shell command -v cargo || echo $(HOME)/.cargo/bin/cargo)
NODES ?= 4
PREFIX ?= /usr/local
LIBDIR ?= lib
DESTDIR ?= /

demo: packages
	@# Cargo says where its programs are: CARGO_TARGET_DIR, build.target-dir or build.target may move them.
	program() {
	  $(CARGO) build --release "$$@" --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
	}
	oikaze=$$(program -p oikaze-cli --bin oikaze)
	himeno=$$(program -p oikaze-apps --bin himeno)
	"$$oikaze" run --no-prefix -n $(NODES) -- "$$himeno" --size S --iterations 100 --verify --progress

test: packages
	$(CARGO) xtask test

# Packages are tested for what they hold and how they install, so they need not be fast.
test-all: export CARGO_PROFILE_DIST_LTO ?= off
test-all: export CARGO_PROFILE_DIST_CODEGEN_UNITS ?= 16
test-all: export CARGO_PROFILE_DIST_OPT_LEVEL ?= 1
test-all: packages packages-all
	$(CARGO) xtask test-all

deb: packages
	$(CARGO) xtask deb

wheel: packages
	$(CARGO) xtask wheel

soak: packages
	$(CARGO) xtask soak

fuzz: packages
	$(CARGO) xtask fuzz

install uninstall:
	$(CARGO) xtask install --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --destdir "$(DESTDIR)" $(if $(filter uninstall,$@),--uninstall)

bench: packages packages-bench
	$(CARGO) xtask bench wind

# What the tests and the build need of the system: commands, and modules of Python. As root, what is missing is installed; otherwise it is named.
define need
	missing=()
	for pair in $(1); do
	  command -v "$${pair%%=*}" >/dev/null || missing+=("$${pair#*=}")
	done
	for pair in $(2); do
	  import="import $${pair%%=*}"
	  python3 -c "$$import" 2>/dev/null || /usr/bin/python3 -c "$$import" 2>/dev/null || missing+=("$${pair#*=}")
	done
	if [ $${#missing[@]} -gt 0 ]; then
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	    echo "installing $${missing[*]}" >&2
	    apt-get update -qq >/dev/null
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$${missing[@]}" >/dev/null
	  else
	    echo "missing packages: $${missing[*]}; install them (sudo apt-get install $${missing[*]}), then run make again" >&2
	    exit 1
	  fi
	fi
endef

packages:
	@$(call need,cc=build-essential c++=build-essential pkg-config=pkg-config ip=iproute2 ethtool=ethtool nft=nftables,numpy=python3-numpy ensurepip=python3-venv)
	if ! [ -x "$$(command -v $(CARGO))" ]; then
	  echo "Rust is missing; install it with rustup, as the Rust project's pages say, and run make again" >&2
	  exit 1
	fi

packages-bench:
	@$(call need,ucx_perftest=ucx-utils fi_pingpong=libfabric-bin taskset=util-linux stdbuf=coreutils wireguard-go=wireguard-go wg=wireguard-tools)

# Servers are installed only where that starts none: systemd would open the machine to the network.
packages-all:
	@$(call need,file=file dpkg-deb=dpkg gzip=gzip ssh=openssh-client busybox=busybox valgrind=valgrind mpirun.openmpi=openmpi-bin mpiexec.hydra=mpich)
	if ! pkg-config --exists mpich; then
	  $(call need,mpi.h=libmpich-dev)
	fi
	if ! command -v torchrun >/dev/null; then
	  echo "torchrun is missing: the test of its jobs will be skipped (python3-torch, 143 MB)" >&2
	fi
	if ! { command -v sshd && command -v slurmctld && command -v slurmd && command -v srun; } >/dev/null; then
	  if [ -d /run/systemd/system ]; then
	    echo "sshd, slurmctld, slurmd or srun is missing: tests through them will be skipped (openssh-server, slurmctld, slurmd, slurm-client; installing them starts services)" >&2
	  else
	    $(call need,sshd=openssh-server slurmctld=slurmctld slurmd=slurmd srun=slurm-client)
	  fi
	fi
