# Finds, or receives and keeps, an oikaze command on another host, and becomes its agent
# (LAUNCH-8). `ssh HOST sh` reads this script from standard input, whatever the login shell is.
# The launcher sets these variables before it: oikaze_version, oikaze_path, oikaze_cache,
# oikaze_token.
#
# Some shells read ahead. The launcher therefore sends nothing more until a line asks for it, and
# all of the script is one command, which the shell has read before it begins.
{

# Prints the path of a command that is right. A subshell does so, because the agent shall have the
# umask and the environment of the host. Descriptor 3 leads to the launcher.
find_agent() (
umask 077
LC_ALL=C
export LC_ALL

# Lines for the launcher begin on a line of their own, whatever a login shell has printed before.
tell() { printf '\nOIKAZE-INSTALL %s\n' "$1" >&3; }

is_right() {
  [ -x "$1" ] && [ "$("$1" agent --version 2>/dev/null </dev/null)" = "oikaze-agent $oikaze_version" ]
}

use() {
  printf '%s\n' "$1"
  exit 0
}

user=$(id -u)

# The path of the launcher's host may be one that another user of this host can make. So the file
# and all folders above it belong to this user or to root, and nobody else can replace them.
is_trusted() {
  above=$1
  while [ -n "$(find "$above" -prune \( -user 0 -o -user "$user" \) \
    \( ! -perm -020 ! -perm -002 -o -type d -perm -1000 \) 2>/dev/null)" ]; do
    [ "$above" != / ] || return 0
    above=$(dirname "$above")
  done
  return 1
}

if is_trusted "$oikaze_path" && is_right "$oikaze_path"; then use "$oikaze_path"; fi
found=$(command -v oikaze) && is_right "$found" && use "$found"

tell "WANTS $(uname -s) $(uname -m)"
read -r hash size may_send || exit 1

# Prints the SHA-256 of a file. A host without any tool for it has the command itself.
digest() {
  if command -v sha256sum >/dev/null; then sha256sum <"$1"
  elif command -v shasum >/dev/null; then shasum -a 256 <"$1"
  elif command -v openssl >/dev/null; then openssl dgst -sha256 -r <"$1"
  else "$1" digest <"$1"
  fi 2>/dev/null | { read -r first _ && printf '%s' "$first"; }
}

is_intact() {
  [ -f "$1" ] && [ "$(($(wc -c <"$1")))" = "$size" ] && [ "$(digest "$1")" = "$hash" ]
}

# A directory in /tmp may be another user's, made to plant a command of their own.
is_private() { [ -n "$(find "$1" -prune -type d -user "$user" ! -perm -020 ! -perm -002)" ]; }

# Prints how many kibibytes are free, or nothing where df does not tell.
room() { df -Pk "$1" 2>/dev/null | { read -r _ && read -r _ _ _ free _ && printf '%s' "$free"; }; }

set --
cache=${oikaze_cache:-${OIKAZE_CACHE_DIR-}}
if [ -n "$cache" ]; then
  set -- "$cache"
else
  base=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  case $base in /*) set -- "$base/oikaze" ;; esac
  for base in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do set -- "$@" "$base/oikaze-$user"; done
fi

for folder do
  kept=$folder/$hash/oikaze
  if [ -f "$kept" ] && is_private "$folder" && is_intact "$kept" && is_right "$kept"; then
    touch "$folder/$hash"
    use "$kept"
  fi
done

if [ "$may_send" != send ]; then
  tell 'FORBIDDEN'
  exit 1
fi

# Prepares a folder, and says why it does not do.
prepare() {
  mkdir -p "$folder" || return
  if ! is_private "$folder"; then
    echo 'it is not a directory that only this user can write'
    return 1
  fi
  mkdir -p "$folder/$hash" || return
  find "$folder/$hash" -name 'part.*' -mtime +0 -exec rm -f {} +
  printf '#!/bin/sh\n' >"$part" && chmod 700 "$part" || return
  if ! "$part" </dev/null 2>/dev/null; then
    echo 'no program may be executed there (see mount for noexec)'
    return 1
  fi
  free=$(room "$folder")
  if [ "${free:-$size}" -lt "$((size / 1024 + 64))" ] 2>/dev/null; then
    echo "it has only $free KiB of free space"
    return 1
  fi
}

# Writes what the launcher sends. All of it is read even if the disk is full, so that the launcher
# can send it again for another folder.
receive() { head -c "$size" | { cat >"$part" || { cat >/dev/null; false; }; }; }

# The four versions that were used last stay.
prune() {
  touch "$folder/$hash"
  count=0
  ls -t "$folder" | while read -r name; do
    case $name in *[!0-9a-f]*) continue ;; esac
    [ "${#name}" = 64 ] || continue
    count=$((count + 1))
    [ "$count" -le 4 ] || rm -rf "${folder:?}/$name"
  done
}

trap 'rm -f "$part"' EXIT
trap 'exit 1' HUP INT PIPE TERM
reasons=
for folder do
  part=$folder/$hash/part.$oikaze_token
  if why=$(prepare 2>&1); then
    tell "SEND $folder/$hash/oikaze"
    if why=$(receive 2>&1) && is_intact "$part"; then
      chmod 700 "$part"
      if is_right "$part"; then
        if why=$(mv -f "$part" "$folder/$hash/oikaze" 2>&1); then
          prune 2>/dev/null
          use "$folder/$hash/oikaze"
        fi
      else
        tell "UNFIT $("$part" agent --version 2>&1 </dev/null | tr '\n' ' ')"
        exit 1
      fi
    elif [ -z "$why" ]; then
      why='what arrived is not what was sent'
    fi
  fi
  rm -f "$part"
  reasons="$reasons$folder: $why; "
done
tell "FAILED $(printf '%s' "$reasons" | tr '\n' ' ')"
exit 1
)

exec 3>&1
oikaze_agent=$(find_agent) && exec "$oikaze_agent" agent 3>&-
exit 1
}
