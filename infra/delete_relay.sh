#!/usr/bin/env bash
# Deletes the resources that create_relay.sh created for one or more developers.
set -euo pipefail
# shellcheck source=infra/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: delete_relay.sh -g GROUP -n NAMESPACE [--hc NAME ...] [--key-vault VAULT] [--namespace-too] [options]

Deletes hybrid connections together with their rules and secrets; all sessions on these hybrid connections end.
Resources that do not exist are skipped. Secrets can be recovered within the vault's retention period; the resource
group is never deleted.

  -g, --resource-group GROUP
  -n, --namespace NAMESPACE
      --hc NAME          hybrid connection to delete; repeatable
      --key-vault VAULT  Key Vault that contains the secrets to delete
      --namespace-too    delete the namespace, if it contains no other hybrid connections
      --subscription NAME_OR_ID
      --dry-run          print what would be deleted, and delete nothing
  -y, --yes              do not ask for confirmation
  -h, --help

examples:
  delete_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv
  delete_relay.sh -g debug-rg -n contoso-debug --hc alice --hc bob --key-vault contoso-kv --namespace-too --yes

exit codes: 0 success, 1 az failed or you did not confirm, 2 invalid command line, 3 invalid configuration, 4 not signed in
  or not permitted, 6 Azure is unreachable or too busy, 130 Ctrl-C
TEXT
}

NAMESPACE_TOO=''

main() {
  local hc
  parse "$@"
  begin
  look
  if [ ! -s "$WORK/doomed" ]; then
    say "nothing to delete: none of these resources exist"
    return
  fi
  if [ -z "$DRY_RUN$YES" ]; then
    say "The following will be deleted for all users:"
    sed 's/^/  /' "$WORK/doomed"
  fi
  confirm "Delete?"
  # Delete the namespace last: if an earlier step fails, the next run still finds the rest.
  for hc in $HCS; do delete_hc "$hc"; done
  delete_namespace
  [ -z "$DRY_RUN" ] || say "dry run: nothing was deleted"
}

parse() {
  while [ $# -gt 0 ]; do
    if common_option "$@"; then
      shift "$CONSUMED"
      continue
    fi
    case "$1" in
      --namespace-too) NAMESPACE_TOO=1 && shift ;;
      -y | --yes) YES=1 && shift ;;
      *) usage_error "unknown option '$1'" ;;
    esac
  done
  check_names
  [ -n "$HCS$NAMESPACE_TOO" ] || usage_error "nothing to delete: --hc NAME or --namespace-too is required"
}

# Finds what exists: writes one line per resource to $WORK/doomed, and marker files for delete_hc.
look() {
  local hc kind sibling namespace=''
  : >"$WORK/doomed"
  if namespace_exists; then namespace=1; fi
  for hc in $HCS; do
    mkdir -p "$WORK/$hc"
    [ -z "$VAULT" ] || for kind in agent client tunnel-key; do read_secret "$hc" "$kind" || true; done
    find_all_siblings "$hc" "$namespace"
    for sibling in $(siblings "$hc"); do
      mkdir -p "$WORK/$sibling"
      if [ -n "$namespace" ] && hc_exists "$sibling"; then
        : >"$WORK/$sibling/exists"
        doom "hybrid connection '$sibling' in namespace '$NAMESPACE'"
      fi
    done
    for kind in agent client tunnel-key; do
      [ ! -e "$WORK/$hc/$kind/stored" ] || doom "secret '$(secret_name "$hc" "$kind")' in Key Vault '$VAULT'"
    done
  done
  if [ -n "$NAMESPACE_TOO" ] && [ -n "$namespace" ]; then
    refuse_if_shared
    : >"$WORK/namespace"
    doom "Relay namespace '$NAMESPACE'"
  fi
}

# find_all_siblings HC NAMESPACE_EXISTS: determines the size of the family. Without a connection string, a family consists
# of the hybrid connections that have its numbered names and its mark.
find_all_siblings() {
  local size
  find_family "$1" 1
  size=$(cat "$WORK/$1/size")
  if [ -z "$2" ] || [ "$size" -gt 1 ]; then return 0; fi
  while hc_exists "$1-$size" && is_marked "$1"; do size=$((size + 1)); done
  printf %s "$size" >"$WORK/$1/size"
}

doom() { say "$1" >>"$WORK/doomed"; }

# Deleting the namespace would also delete other developers' hybrid connections, and leave their secrets behind.
refuse_if_shared() {
  local hc others='' all=''
  for hc in $HCS; do all="$all $(siblings "$hc" | tr '\n' ' ')"; done
  must_az relay hyco list -g "$GROUP" --namespace-name "$NAMESPACE" --query '[].name' -o tsv
  for hc in $(answer); do
    case " $(lower "$all") " in
      *" $(lower "$hc") "*) ;;
      *) others="$others${others:+, }$hc" ;;
    esac
  done
  [ -z "$others" ] || die 3 "namespace '$NAMESPACE' contains other hybrid connections: $others" \
    "add --hc for each of them to delete it too, or omit --namespace-too"
}

delete_hc() {
  local hc=$1 kind sibling
  for sibling in $(siblings "$hc"); do
    [ -e "$WORK/$sibling/exists" ] || continue
    changed delete "hybrid connection '$sibling'"
    [ -n "$DRY_RUN" ] || gone relay hyco delete -g "$GROUP" --namespace-name "$NAMESPACE" -n "$sibling"
  done
  for kind in agent client tunnel-key; do
    if [ -e "$WORK/$hc/$kind/stored" ]; then
      changed delete "secret '$(secret_name "$hc" "$kind")' in Key Vault '$VAULT'"
      [ -n "$DRY_RUN" ] || gone keyvault secret delete --vault-name "$VAULT" -n "$(secret_name "$hc" "$kind")"
    fi
  done
}

delete_namespace() {
  [ -e "$WORK/namespace" ] || return 0
  changed delete "Relay namespace '$NAMESPACE'"
  [ -n "$DRY_RUN" ] || gone relay namespace delete -g "$GROUP" -n "$NAMESPACE"
}

# gone ARGUMENTS: runs a `delete` command; succeeds if the resource no longer exists.
gone() { found "$@" -o none || true; }

main "$@"
