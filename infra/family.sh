# shellcheck shell=bash
# Families of hybrid connections: NAME, NAME-1, NAME-2, ... They share one name and one connection string for each side, and
# serve more nodes than one hybrid connection accepts. Sourced by lib.sh.
#
# $WORK/NAME/size contains the number of hybrid connections. A stored connection string contains a key for each hybrid
# connection of the family, and therefore defines which ones belong to it: a colleague may have chosen the name NAME-1.

LISTENERS_PER_HC=25 # Azure's limit

# siblings HC: prints the names of the family's hybrid connections, one per line.
siblings() {
  local number=1 size=1
  [ ! -s "$WORK/$1/size" ] || size=$(cat "$WORK/$1/size")
  say "$1"
  while [ "$number" -lt "$size" ]; do
    say "$1-$number"
    number=$((number + 1))
  done
}

# name_with_size HC: prints the name for programs without a connection string, which cannot read the size from it.
name_with_size() {
  if [ "$(cat "$WORK/$1/size")" -gt 1 ]; then printf '%s:%s' "$1" "$(cat "$WORK/$1/size")"; else printf %s "$1"; fi
}

# find_family HC NODES: determines the size from the stored secrets, and increases it if NODES requires this.
find_family() {
  local size wanted
  size=$(stored_size "$1") wanted=$((($2 + LISTENERS_PER_HC - 1) / LISTENERS_PER_HC))
  while [ "$size" -lt "$wanted" ]; do
    if is_separate "$1-$size"; then
      die 3 "'$1-$size' is a separate hybrid connection, so it cannot become part of the family '$1'" \
        "choose another name with --hc, or delete '$1-$size' with: delete_relay.sh --hc $1-$size"
    fi
    size=$((size + 1))
  done
  mkdir -p "$WORK/$1"
  printf %s "$size" >"$WORK/$1/size"
}

# stored_size HC: prints the number of hybrid connections in the stored connection strings that `read_secret` has read.
stored_size() {
  local kind keys commas
  for kind in agent client; do
    if [ -s "$WORK/$1/$kind/stored" ]; then
      keys=$(field FamilyKeys "$WORK/$1/$kind/stored")
      commas=$(printf %s "$keys" | tr -cd ,)
      say $((1 + ${#commas} + (${#keys} > 0)))
      return
    fi
  done
  say 1
}

# refuse_member HC: exits if the hybrid connection belongs to a family. Otherwise, its agents and those of the family would
# listen side by side with different tunnel keys, and clients could not reach them.
refuse_member() {
  local base=${1%-*} kind
  matches "$1" '.-[1-9][0-9]{0,2}$' || return 0
  for kind in agent client; do
    # A secret that is missing, unreadable or from another namespace does not describe a family that concerns this run.
    if ! (read_secret "$base" "$kind") 2>/dev/null; then rm -f "$(folder "$base" "$kind")/stored"; fi
  done
  if [ "$(stored_size "$base")" -gt "${1##*-}" ] || { namespace_exists && hc_exists "$1" && is_marked "$base"; }; then
    die 3 "'$1' is a hybrid connection of the family '$base'" "use --hc $base, or choose another name"
  fi
}

# family_mark HC: prints the userMetadata of the second and further hybrid connections of a family. It identifies the
# family when no connection string exists (Entra ID) or can be read.
family_mark() { printf 'relay-debug family %s' "$(lower "$1")"; }

# is_marked HC: whether the hybrid connection that `hc_exists` has found belongs to this family.
is_marked() { [ "$(answer | sed -n 3p)" = "$(family_mark "$1")" ]; }

# is_separate HC: whether a hybrid connection was given with --hc, or has secrets of its own.
is_separate() {
  local kind
  case " $(lower "$HCS") " in *" $(lower "$1") "*) return 0 ;; esac
  for kind in agent tunnel-key; do
    if found keyvault secret show --vault-name "$VAULT" -n "$(secret_name "$1" "$kind")" --query id -o tsv; then
      return 0
    fi
  done
  return 1
}

# join_family HC KIND: adds the keys of the other hybrid connections to the connection strings that `read_keys` has written
# for the first one. If a key is missing, the connection string is removed.
join_family() {
  local key sibling dir
  dir=$(folder "$1" "$2")
  for key in primary secondary; do
    : >"$dir/others"
    for sibling in $(siblings "$1" | sed 1d); do
      if [ -s "$WORK/$sibling/$2/$key" ]; then
        field SharedAccessKey "$WORK/$sibling/$2/$key" >>"$dir/others"
      else
        rm -f "$dir/$key"
      fi
    done
    if [ -s "$dir/$key" ] && [ -s "$dir/others" ]; then
      printf ';FamilyKeys=' >>"$dir/$key"
      paste -s -d , "$dir/others" | tr -d '\n' >>"$dir/$key"
    fi
  done
}
