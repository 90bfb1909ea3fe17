#!/usr/bin/env bash
# Renews the keys of hybrid connections in two phases, so that no running session is cut.
set -euo pipefail
# shellcheck source=infra/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: rotate_keys.sh -g GROUP -n NAMESPACE --hc NAME [--hc NAME ...] --key-vault VAULT --phase PHASE [options]

Each rule has two keys that both work. Agents and clients read one of them from Key Vault when they start, and need it
until they end: to renew their token, and to come back after a network cut. So a key may be renewed only when nobody
holds it any more. Every phase renews the key that the secrets do NOT hold, then lets the secrets hold that one:

  1. --phase secondary   now. What runs continues with the primary key, what starts from now on gets the new secondary.
  2. wait until every job and every relay-client that was started before step 1 has ended
  3. --phase primary     the old primary key is worth nothing now; the secrets hold the new primary.
  4. wait again, in the same way, before the next rotation

A phase that is repeated, or that was cut short, does only what is left to do.

      --phase tunnel-key   a new tunnel key for all secrets, if the old one may have leaked. It has no second value:
                         what runs continues, but cannot be joined, or joined again, by what starts from now on.

  -g, --resource-group GROUP
  -n, --namespace NAMESPACE
      --hc NAME          repeat for more
      --key-vault VAULT  where create_relay.sh stored the connection strings
      --phase PHASE      secondary, primary or tunnel-key
      --subscription NAME_OR_ID
      --dry-run          print what would be renewed and change nothing
  -y, --yes              do not ask before a phase that can cut a session of somebody who still holds the old key
  -h, --help

examples:
  rotate_keys.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --phase secondary
  rotate_keys.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --phase primary

exit codes: 0 done, 1 az failed or the answer was no, 2 wrong command line, 3 unusable configuration, 4 not signed in or
  not allowed, 5 no such namespace, hybrid connection or rule, 6 Azure cannot be reached or is too busy, 130 Ctrl-C
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
    '') usage_error "--phase is missing: secondary first, primary later" ;;
    *) usage_error "--phase is secondary, primary or tunnel-key, not '$PHASE'" ;;
  esac
}

# Reads everything of one hybrid connection before anything is changed: what is stored, and both rules' keys.
LISTENERS=0
read_state() {
  local hc=$1 kind count
  hc_exists "$hc" || die 5 "namespace '$NAMESPACE' has no hybrid connection '$hc'" "create_relay.sh makes one"
  count=$(answer | sed -n 2p)
  if matches "$count" '^[0-9]+$'; then LISTENERS=$((LISTENERS + count)); fi
  if [ "$PHASE" = tunnel-key ] && read_secret "$hc" tunnel-key &&
    ! read_secret "$hc" agent && ! read_secret "$hc" client; then
    return # create_relay.sh --entra: no strings
  fi
  for kind in agent client; do
    if ! read_secret "$hc" "$kind" || ! keep_tunnel_key "$(folder "$hc" "$kind")/stored" "$WORK/$hc/$kind/tunnel-key"; then
      die 3 "Key Vault '$VAULT' has no complete connection string in '$(secret_name "$hc" "$kind")'" \
        "run create_relay.sh with the same names: it completes what is missing"
    fi
    rule_exists "$hc" "$(rule_of "$kind")" ||
      die 5 "hybrid connection '$hc' has no rule '$(rule_of "$kind")'" "run create_relay.sh with the same names"
    read_keys "$hc" "$kind"
  done
}

# holds HC KIND KEY: whether the stored string has this key of the rule.
holds() {
  local dir
  dir=$(folder "$1" "$2")
  without_tunnel_key "$dir/stored" | cmp -s - "$dir/$3"
}

# Phase secondary renews a key that nobody was given since the last rotation ended. The other two take a key away that
# somebody may still hold: only people know whether the old jobs have ended. With no listener there is nothing to cut.
ask() {
  if [ "$PHASE" = secondary ] || [ "$LISTENERS" -eq 0 ] || ! anything_to_do; then return 0; fi
  note "$LISTENERS agent(s) are connected now; those that were started before the last phase would be cut"
  confirm "Have all jobs and clients ended that were started before the last phase?"
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
  local hc=$1 kind=$2 dir rule key=PrimaryKey
  dir=$(folder "$hc" "$kind") rule=$(rule_of "$kind")
  if holds "$hc" "$kind" "$PHASE"; then return; fi
  if [ "$PHASE" = secondary ]; then key=SecondaryKey; fi
  changed renew "the $PHASE key of rule '$rule' on '$hc'"
  changed store "it in secret '$(secret_name "$hc" "$kind")'"
  [ -z "$DRY_RUN" ] || return 0
  # The answer holds the new keys, so it is not wanted here: read_keys puts them where they belong.
  rule_az 'keys renew' "$hc" "$rule" --key "$key" -o none || explain
  read_keys "$hc" "$kind"
  join "$dir/$PHASE" "$dir/tunnel-key" >"$dir/wanted"
  write_secret "$hc" "$kind" "$dir/wanted"
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
    say "nothing to change: the secrets hold the $PHASE keys already"
    if [ "$PHASE" = primary ]; then
      say "A rotation starts with --phase secondary."
      return
    fi
  elif [ -n "$DRY_RUN" ]; then
    say "dry run: nothing was changed"
    return
  fi
  case "$PHASE" in
    secondary)
      say "When everything has ended that was started before $(date -u '+%Y-%m-%d %H:%M UTC'), type:"
      say "  $0 -g $GROUP -n $NAMESPACE --hc ${HCS// / --hc } --key-vault $VAULT" \
        "${SUBSCRIPTION:+--subscription \"$SUBSCRIPTION\" }--phase primary"
      ;;
    primary) say "The rotation is complete. Wait in the same way before the next one." ;;
    tunnel-key) say "Start the jobs and relay-clients that are to meet again: both sides must read the new key." ;;
  esac
}

main "$@"
