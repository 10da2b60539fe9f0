#!/bin/sh
# Measures everything that README.md, docs/BENCH.md and bench/papers show, and writes their tables
# and pictures. Run it as root on a machine without other work: it takes about 25 minutes.
#
# ROUNDS=1 bench/measure.sh wind dsm    one round of some benches only (default: 5 rounds of all)
set -u
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5}
results=bench/results
mkdir -p "$results"
failed=

# Runs a bench, and notes when it fails, for whatever else can be measured is.
measure() {
    file=$1
    shift
    echo "== $file, $(date -u +%H:%M:%S): $*"
    cargo xtask bench "$@" --rounds "$rounds" || failed="$failed $file"
}

# A bench fails if a peer is not installed.
fabric=
command -v fi_pingpong > /dev/null || fabric="--without ofi-tcp,ofi-udp"
tunnel=
command -v wireguard-go > /dev/null || tunnel="--without wireguard"

[ $# -gt 0 ] || set -- wind remote shm seal dsm dsm-machine collectives multicast python papers
for name in "$@"; do
    json="--json $results/$name.json"
    case $name in
    wind) measure "$name" "$name" --quick $fabric $json ;;
    seal) measure "$name" "$name" --quick --mtu 9000 $tunnel $json ;;
    remote) measure "$name" "$name" --quick --mtu 9000 $fabric $json ;;
    dsm-machine) measure "$name" dsm --quick --mode machine $json ;;
    multicast) measure "$name" multicast --quick $json ;;
    collectives) measure "$name" collectives --quick --mode wire,machine --nodes 2 $json ;;
    papers) measure "$name" papers --quick --out bench/papers --json target/papers.json ;;
    *) measure "$name" "$name" --quick $json ;;
    esac
done
cargo xtask bench tables || failed="$failed tables"
[ -z "$failed" ] || { echo "measure.sh: failed:$failed" >&2; exit 1; }
