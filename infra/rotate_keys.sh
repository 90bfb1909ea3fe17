#!/usr/bin/env bash
# Renews the keys of hybrid connections in two phases, without disconnecting running sessions.
set -euo pipefail
# shellcheck source=infra/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: rotate_keys.sh -g GROUP -n NAMESPACE --hc NAME [--hc NAME ...] --key-vault VAULT --phase PHASE [options]

Each rule has two valid keys. Agents and clients read one of them from Key Vault when they start, and need it until they
exit, to renew their token and to reconnect after a network failure. Therefore, a key may be renewed only when no process
is using it. Each phase renews the key that is NOT in the secrets, and then stores it in the secrets:

  1. --phase secondary   Running processes continue with the primary key; new processes get the new secondary key.
  2. Wait until every job and every relay-client that was started before step 1 has exited.
  3. --phase primary     The old primary key becomes invalid; the secrets contain the new primary key.
  4. Before the next rotation, wait until every job and every relay-client that was started before step 3 has exited.

If a phase was interrupted, run it again to complete the missing steps.

      --phase tunnel-key   store a new tunnel key in all secrets. Use this phase if the current key may have leaked.
                         Only one tunnel key is valid at a time: running sessions continue, but processes that
                         were started before this phase cannot connect to processes that are started later.

  -g, --resource-group GROUP
  -n, --namespace NAMESPACE
      --hc NAME          repeatable
      --key-vault VAULT  the Key Vault in which create_relay.sh stored the connection strings
      --phase PHASE      secondary, primary or tunnel-key
      --subscription NAME_OR_ID
      --dry-run          print what would be renewed, and change nothing
  -y, --yes              do not ask for confirmation, even if processes that use an old key may be disconnected
  -h, --help

examples:
  rotate_keys.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --phase secondary
  rotate_keys.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --phase primary

exit codes: 0 success, 1 az failed or you did not confirm, 2 invalid command line, 3 invalid configuration, 4 not signed in
  or not permitted, 5 no such namespace, hybrid connection or rule, 6 Azure is unreachable or too busy, 130 Ctrl-C
TEXT
}

PHASE=''

main() {
  local hc kind
  parse "$@"
  begin
  namespace_exists || die 5 "Relay namespace '$NAMESPACE' was not found in resource group '$GROUP'" "check both names"
  for hc in $HCS; do read_state "$hc"; done
  ask
  for hc in $HCS; do
    if [ "$PHASE" = tunnel-key ]; then
      renew_tunnel_key "$hc"
    else
      for kind in agent client; do renew_key "$hc" "$kind"; done
    fi
  done
  report
}

parse() {
  while [ $# -gt 0 ]; do
    if common_option "$@"; then
      shift "$CONSUMED"
      continue
    fi
    case "$1" in
      --phase) need_value "$@" && PHASE=$2 && shift 2 ;;
      -y | --yes) YES=1 && shift ;;
      *) usage_error "unknown option '$1'" ;;
    esac
  done
  check_names
  [ -n "$HCS" ] || usage_error "--hc is missing"
  [ -n "$VAULT" ] || usage_error "--key-vault is missing"
  case "$PHASE" in
    secondary | primary | tunnel-key) ;;
    '') usage_error "--phase is missing: a rotation begins with secondary and continues with primary" ;;
    *) usage_error "--phase must be secondary, primary or tunnel-key, not '$PHASE'" ;;
  esac
}

# read_state HC: reads the stored secrets and the keys of all rules of a hybrid connection or family, before anything is
# changed.
LISTENERS=0
read_state() {
  local hc=$1 kind sibling
  for kind in agent client; do read_secret "$hc" "$kind" || true; done
  find_family "$hc" 1
  for sibling in $(siblings "$hc"); do count_listeners "$sibling"; done
  if [ "$PHASE" = tunnel-key ] && read_secret "$hc" tunnel-key &&
    [ ! -s "$(folder "$hc" agent)/stored" ] && [ ! -s "$(folder "$hc" client)/stored" ]; then
    return # create_relay.sh --entra stored only the tunnel key
  fi
  for kind in agent client; do
    if ! keep_tunnel_key "$(folder "$hc" "$kind")/stored" "$WORK/$hc/$kind/tunnel-key"; then
      die 3 "Key Vault '$VAULT' has no complete connection string in '$(secret_name "$hc" "$kind")'" \
        "run create_relay.sh with the same names to create what is missing"
    fi
    for sibling in $(siblings "$hc"); do
      rule_exists "$sibling" "$(rule_of "$kind")" ||
        die 5 "hybrid connection '$sibling' has no rule '$(rule_of "$kind")'" "run create_relay.sh with the same names"
      read_keys "$sibling" "$kind"
    done
    join_family "$hc" "$kind"
  done
}

count_listeners() {
  local count
  hc_exists "$1" || die 5 "namespace '$NAMESPACE' has no hybrid connection '$1'" "create it with create_relay.sh"
  count=$(answer | sed -n 2p)
  if matches "$count" '^[0-9]+$'; then LISTENERS=$((LISTENERS + count)); fi
}

# holds HC KIND KEY: whether the stored connection string contains this key of the rule.
holds() {
  local dir
  dir=$(folder "$1" "$2")
  without_tunnel_key "$dir/stored" | cmp -s - "$dir/$3"
}

# The phase `secondary` renews a key that no process has received since the last rotation. The other phases invalidate a key
# that may be in use, so the script asks for confirmation: only the user knows whether the old jobs have exited. Without
# listeners, no session can break.
ask() {
  if [ "$PHASE" = secondary ] || [ "$LISTENERS" -eq 0 ] || ! anything_to_do; then return 0; fi
  note "$LISTENERS agent(s) are connected; agents that were started before the previous phase would be disconnected"
  confirm "Have all jobs and clients that were started before the previous phase exited?"
}

anything_to_do() {
  local hc kind
  [ "$PHASE" != tunnel-key ] || return 0
  for hc in $HCS; do
    for kind in agent client; do holds "$hc" "$kind" "$PHASE" || return 0; done
  done
  return 1
}

renew_key() {
  local hc=$1 kind=$2 dir sibling
  dir=$(folder "$hc" "$kind")
  if holds "$hc" "$kind" "$PHASE"; then return; fi
  for sibling in $(siblings "$hc"); do renew_rule "$sibling" "$(rule_of "$kind")"; done
  changed store "the $PHASE key in secret '$(secret_name "$hc" "$kind")'"
  [ -z "$DRY_RUN" ] || return 0
  for sibling in $(siblings "$hc"); do read_keys "$sibling" "$kind"; done
  join_family "$hc" "$kind"
  join "$dir/$PHASE" "$dir/tunnel-key" >"$dir/wanted"
  write_secret "$hc" "$kind" "$dir/wanted"
}

renew_rule() {
  local key=PrimaryKey
  if [ "$PHASE" = secondary ]; then key=SecondaryKey; fi
  changed renew "the $PHASE key of rule '$2' on '$1'"
  [ -z "$DRY_RUN" ] || return 0
  # Discard the output, which contains the new keys; read_keys writes them to private files.
  rule_az 'keys renew' "$1" "$2" --key "$key" -o none || explain
}

renew_tunnel_key() {
  local hc=$1 kind dir
  new_tunnel_key "$WORK/$hc/key"
  for kind in agent client tunnel-key; do
    dir=$(folder "$hc" "$kind")
    [ -s "$dir/stored" ] || continue
    changed store "a new tunnel key in secret '$(secret_name "$hc" "$kind")'"
    if [ "$kind" = tunnel-key ]; then
      cp "$WORK/$hc/key" "$dir/wanted"
    else
      without_tunnel_key "$dir/stored" >"$dir/base"
      join "$dir/base" "$WORK/$hc/key" >"$dir/wanted"
    fi
    [ -n "$DRY_RUN" ] || write_secret "$hc" "$kind" "$dir/wanted"
  done
}

report() {
  if [ "$CHANGES" -eq 0 ]; then
    say "nothing to change: the secrets already contain the $PHASE keys"
    if [ "$PHASE" = primary ]; then
      say "To begin a new rotation, run this with --phase secondary."
      return
    fi
  elif [ -n "$DRY_RUN" ]; then
    say "dry run: nothing was changed"
    return
  fi
  case "$PHASE" in
    secondary)
      say "When all jobs and clients that were started before $(date -u '+%Y-%m-%d %H:%M UTC') have exited, run:"
      say "  $0 -g $GROUP -n $NAMESPACE --hc ${HCS// / --hc } --key-vault $VAULT" \
        "${SUBSCRIPTION:+--subscription \"$SUBSCRIPTION\" }--phase primary"
      ;;
    primary)
      say "The rotation is complete. Before the next one, wait until all jobs and clients started before now have exited."
      ;;
    tunnel-key) say "Restart all jobs and relay-clients, because both sides must read the new key." ;;
  esac
}

main "$@"
