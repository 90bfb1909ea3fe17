#!/usr/bin/env bash
# Creates or reuses the Azure resources for one or more developers, and stores their connection strings in Key Vault.
set -euo pipefail
# shellcheck source=infra/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=infra/bicep.sh
. "$(dirname "${BASH_SOURCE[0]}")/bicep.sh"

usage() {
  cat <<'TEXT'
usage: create_relay.sh -g GROUP -n NAMESPACE --hc NAME [--hc NAME ...] --key-vault VAULT [options]

Creates missing resources and keeps existing ones: the resource group, the Relay namespace, one hybrid connection per
developer with one Listen rule (for the job) and one Send rule (for the laptop), and two Key Vault secrets with their
connection strings and a shared tunnel key. With --entra, the script creates no rules and no connection strings, but
one secret with the tunnel key; authentication then uses Entra ID. A second run changes nothing. Keys are never printed.

  -g, --resource-group GROUP   resource group; created if --location is given
  -n, --namespace NAMESPACE    Relay namespace; its address becomes NAMESPACE.servicebus.windows.net
      --hc NAME                hybrid connection, one per developer; repeatable
      --nodes NUMBER           number of nodes that can be debugged at the same time (default: 25). For more than 25, a
                               family of hybrid connections is created: NAME, NAME-1, NAME-2, ... Agents and clients use
                               it under the single name NAME. A family never becomes smaller
      --key-vault VAULT        name of an existing Key Vault
  -l, --location REGION        region for new resources (default: the resource group's region)
      --agent-principal ID[:TYPE]    object id of the job's identity, which gets the role Azure Relay Listener on each
                               hybrid connection and can read the agent's secret (default TYPE: ServicePrincipal). In a
                               vault with access policies, the identity must already have the secret permission 'get'
      --client-principal ID[:TYPE]   object id of the developer, who gets the role Azure Relay Sender on each hybrid
                               connection and can read the client's secret (default TYPE: User)
      --entra                  store only the tunnel key, for authentication with Entra ID. Agents and clients that
                               use Entra ID can connect to those that use connection strings
      --bicep                  deploy main.bicep once instead of calling az for each resource
      --subscription NAME_OR_ID
      --dry-run                print what would be created, and create nothing
  -h, --help

examples:
  create_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv -l westeurope
  create_relay.sh -g debug-rg -n contoso-debug --hc alice --hc bob --key-vault contoso-kv --dry-run
  create_relay.sh -g debug-rg -n contoso-debug --hc alice --nodes 200 --key-vault contoso-kv
  create_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv \
    --agent-principal 11111111-2222-3333-4444-555555555555
  create_relay.sh -g debug-rg -n contoso-debug --hc alice --key-vault contoso-kv --entra \
    --client-principal 66666666-7777-8888-9999-000000000000

exit codes: 0 success, 1 az failed, 2 invalid command line, 3 invalid configuration, 4 not signed in or not permitted,
  6 Azure is unreachable or too busy, 130 Ctrl-C
TEXT
}

# Ids of built-in Azure roles, the same in every tenant.
ROLE_LISTENER=26e0b698-aa6d-4085-9386-aadae190014d # Azure Relay Listener
ROLE_SENDER=26baccc8-eea7-41f1-98f4-1762cc7f685d   # Azure Relay Sender
ROLE_SECRET_USER=4633458b-17de-408a-b874-0445c86b69e6 # Key Vault Secrets User

MAX_NODES=5000 # maximum number of connections that a namespace accepts

LOCATION='' BICEP='' ENTRA='' NODES=1
AGENT_ID='' AGENT_TYPE='' CLIENT_ID='' CLIENT_TYPE=''

main() {
  local hc
  parse "$@"
  begin
  # Check everything that can fail before changing anything.
  find_vault
  for hc in $HCS; do
    refuse_member "$hc"
    find_secrets "$hc"
    find_family "$hc" "$NODES"
  done
  ensure_group
  ensure_namespace
  for hc in $HCS; do ensure_hc "$hc"; done
  if [ "$CHANGES" -eq 0 ]; then
    say "nothing to change: everything exists, and the secrets are up to date"
  elif [ -n "$DRY_RUN" ]; then
    say "dry run: nothing was created"
    return
  elif [ -n "$BICEP" ]; then
    deploy
  fi
  for hc in $HCS; do next_steps "$hc"; done
}

parse() {
  while [ $# -gt 0 ]; do
    if common_option "$@"; then
      shift "$CONSUMED"
      continue
    fi
    case "$1" in
      -l | --location) need_value "$@" && LOCATION=$2 && shift 2 ;;
      --agent-principal)
        read_principal "$@"
        AGENT_ID=$ID AGENT_TYPE=${TYPE:-ServicePrincipal}
        shift 2
        ;;
      --client-principal)
        read_principal "$@"
        CLIENT_ID=$ID CLIENT_TYPE=${TYPE:-User}
        shift 2
        ;;
      --nodes)
        need_value "$@"
        if ! matches "$2" '^[1-9][0-9]{0,3}$' || [ "$2" -gt "$MAX_NODES" ]; then
          die 2 "invalid number of nodes: '$2'" "use a number from 1 to $MAX_NODES; a namespace accepts at most $MAX_NODES connections"
        fi
        NODES=$2
        shift 2
        ;;
      --bicep) BICEP=1 && shift ;;
      --entra) ENTRA=1 && shift ;;
      *) usage_error "unknown option '$1'" ;;
    esac
  done
  check_names
  [ -n "$HCS" ] || usage_error "--hc is missing"
  [ -n "$VAULT" ] || usage_error "--key-vault is missing"
  [ -z "$BICEP" ] || [ -z "$ENTRA" ] || usage_error "--bicep creates connection strings, so it cannot be used with --entra"
  [ -z "$LOCATION" ] || matches "$LOCATION" '^[A-Za-z0-9 ]+$' ||
    die 2 "invalid Azure region: '$LOCATION'" \
      "run this to list the regions: az account list-locations --query '[].name' -o tsv"
}

# read_principal OPTION ID[:TYPE]: sets ID and TYPE.
ID='' TYPE=''
read_principal() {
  # `az ... -o tsv` prints nothing or None for an identity that does not exist.
  if [ $# -ge 2 ] && { [ -z "$2" ] || [ "$2" = None ]; }; then empty_principal "$1"; fi
  need_value "$@"
  ID=${2%%:*} TYPE=''
  case "$2" in *:*) TYPE=${2#*:} ;; esac
  if ! matches "$ID" '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' ||
    ! matches "$TYPE" '^(User|Group|ServicePrincipal|)$'; then
    die 2 "invalid principal for $1: '$2'" "use OBJECT_ID, OBJECT_ID:User, OBJECT_ID:Group or OBJECT_ID:ServicePrincipal"
  fi
}

empty_principal() {
  if [ "$1" = --client-principal ]; then
    die 2 "the object id for $1 is empty" "run 'az ad signed-in-user show --query id -o tsv' to print yours"
  fi
  die 2 "the object id for $1 is empty: the cluster probably has no managed identity" \
    "assign one in the studio (Compute, Compute clusters, the cluster, Edit: system-assigned), read its principal id again, \
then run this again"
}

# --- existing resources ----------------------------------------------------------------------------------------------

# only_plan: a dry run and --bicep only record what is missing; otherwise it is created immediately.
only_plan() { [ -n "$DRY_RUN$BICEP" ]; }

VAULT_ID='' VAULT_GROUP='' VAULT_URI='' VAULT_HAS_ROLES=''
find_vault() {
  found keyvault show -n "$VAULT" \
    --query '[id,resourceGroup,properties.vaultUri,properties.enableRbacAuthorization]' -o tsv ||
    die 3 "Key Vault '$VAULT' was not found in this subscription" \
      "run this to create it: az keyvault create -g $GROUP -n $VAULT -l ${LOCATION:-REGION} --enable-rbac-authorization true"
  VAULT_ID=$(answer | sed -n 1p) VAULT_GROUP=$(answer | sed -n 2p) VAULT_URI=$(answer | sed -n 3p)
  if [ "$(answer | sed -n 4p)" = true ]; then VAULT_HAS_ROLES=1; else check_policies; fi
}

# A vault with access policies ignores roles on its secrets. A policy covers all secrets in the vault, so this script does
# not add one and leaves that decision to the vault's owners.
check_policies() {
  local id commands=''
  [ -n "$AGENT_ID$CLIENT_ID" ] || return 0
  must_az keyvault show -n "$VAULT" -o tsv \
    --query "properties.accessPolicies[].[objectId, join(' ', permissions.secrets || \`[]\`)]"
  tr '[:upper:]' '[:lower:]' <"$WORK/out" >"$WORK/policies"
  for id in $AGENT_ID $CLIENT_ID; do
    id=$(lower "$id")
    if may_read "$id"; then continue; fi
    # The command replaces the object's permissions, so it includes the existing ones.
    commands="$commands${commands:+; }az keyvault set-policy -n $VAULT --object-id $id --secret-permissions$PERMISSIONS get"
  done
  [ -z "$commands" ] || die 3 "Key Vault '$VAULT' uses access policies, which grant access to all of its secrets" \
    "if that is acceptable, run: $commands; then run this again. A vault with --enable-rbac-authorization true needs no policy"
}

# may_read ID: whether an access policy allows this object to read secrets; sets PERMISSIONS to the object's permissions.
PERMISSIONS=''
may_read() {
  PERMISSIONS=$(sed -n "s/^$1[[:space:]]/ /p" "$WORK/policies" | tr -d '\r\n')
  case "$PERMISSIONS " in *' get '* | *' all '*) return 0 ;; *) return 1 ;; esac
}

# wanted_kinds: prints the kinds of secrets that this run creates.
wanted_kinds() { if [ -n "$ENTRA" ]; then printf tunnel-key; else printf 'agent client'; fi; }

# find_secrets HC: reads the stored secrets. A soft-deleted secret blocks its name, so it is recovered if this run needs it.
find_secrets() {
  local kind name
  for kind in agent client tunnel-key; do
    name=$(secret_name "$1" "$kind")
    if read_secret "$1" "$kind"; then continue; fi
    case " $(wanted_kinds) " in *" $kind "*) ;; *) continue ;; esac
    if ! found keyvault secret show-deleted --vault-name "$VAULT" -n "$name" -o none; then continue; fi
    changed recover "deleted secret '$name' in Key Vault '$VAULT'"
    [ -n "$DRY_RUN" ] || recover_secret "$1" "$kind" "$name"
  done
}

recover_secret() {
  local attempt=1 pause=$RETRY_SECONDS
  must_az keyvault secret recover --vault-name "$VAULT" -n "$3" -o none
  until read_secret "$1" "$2"; do
    [ "$attempt" -lt "$MAX_ATTEMPTS" ] ||
      die 6 "secret '$3' is still being recovered" "run this again in a minute; completed steps are skipped"
    sleep "$pause"
    attempt=$((attempt + 1)) pause=$((pause * 2))
  done
}

ensure_group() {
  must_az group exists -n "$GROUP" -o tsv
  if [ "$(answer)" = true ]; then
    [ -n "$LOCATION" ] && return
    must_az group show -n "$GROUP" --query location -o tsv
    LOCATION=$(answer)
    return
  fi
  [ -n "$LOCATION" ] || die 3 "resource group '$GROUP' was not found" "add --location REGION to create it"
  changed create "resource group '$GROUP' in $LOCATION"
  [ -n "$DRY_RUN" ] || must_az group create -n "$GROUP" -l "$LOCATION" -o none
}

NAMESPACE_IS_NEW='' NAMESPACE_ID=''
ensure_namespace() {
  if namespace_exists; then
    LOCATION=$(answer | sed -n 1p) NAMESPACE_ID=$(answer | sed -n 2p)
    return
  fi
  must_az relay namespace exists -n "$NAMESPACE" --query nameAvailable -o tsv
  [ "$(answer)" = true ] || die 3 "the name '$NAMESPACE' is in use by another resource group or another company" \
    "choose another --namespace, or use the resource group that contains it"
  NAMESPACE_IS_NEW=1
  changed create "Relay namespace '$NAMESPACE' in $LOCATION"
  only_plan && return
  must_az relay namespace create -g "$GROUP" -n "$NAMESPACE" -l "$LOCATION" --query id -o tsv
  NAMESPACE_ID=$(answer)
}

# --- one hybrid connection -------------------------------------------------------------------------------------------

ensure_hc() {
  local hc=$1 kind sibling
  for sibling in $(siblings "$hc"); do ensure_sibling "$sibling" "$hc"; done
  [ -n "$ENTRA" ] || for kind in agent client; do join_family "$hc" "$kind"; done
  choose_tunnel_key "$hc"
  for kind in $(wanted_kinds); do ensure_secret "$hc" "$kind"; done
  # A separately stored tunnel key must stay the same as the one in the connection strings.
  if [ -z "$ENTRA" ] && [ -s "$(folder "$hc" tunnel-key)/stored" ]; then ensure_secret "$hc" tunnel-key; fi
  ensure_roles "$hc" agent "$AGENT_ID" "$AGENT_TYPE" "$ROLE_LISTENER"
  ensure_roles "$hc" client "$CLIENT_ID" "$CLIENT_TYPE" "$ROLE_SENDER"
}

# ensure_sibling HC FAMILY: creates one hybrid connection and its rules; creates $WORK/HC/new if the hybrid connection is new.
ensure_sibling() {
  local hc=$1 kind mark=()
  [ "$1" = "$2" ] || mark=(--user-metadata "$(family_mark "$2")")
  mkdir -p "$WORK/$hc"
  if [ -n "$NAMESPACE_IS_NEW" ] || ! hc_exists "$hc"; then
    : >"$WORK/$hc/new"
    changed create "hybrid connection '$hc'"
    # Without client authorization, anyone who knows the name could connect to the debugger.
    only_plan || must_az relay hyco create -g "$GROUP" --namespace-name "$NAMESPACE" -n "$hc" \
      --requires-client-authorization true ${mark[@]+"${mark[@]}"} -o none
  elif [ "$(answer | sed -n 1p)" = false ]; then
    die 3 "hybrid connection '$hc' allows connections without a key (requiresClientAuthorization is false)" \
      "this cannot be changed later; choose another name, or delete the hybrid connection and run this again"
  fi
  [ -n "$ENTRA" ] || for kind in agent client; do ensure_rule "$hc" "$kind"; done
}

is_new() { [ -e "$WORK/$1/new" ]; }

# Existing rules are not written again: a write with the same rights can change the rule's keys
# (Azure/azure-sdk-for-python issue 25092), which would disconnect every running session.
ensure_rule() {
  local hc=$1 kind=$2 rule rights
  rule=$(rule_of "$kind") rights=$(rights_of "$kind")
  if ! is_new "$hc" && rule_exists "$hc" "$rule"; then
    [ "$(answer)" = "$rights" ] || die 3 "rule '$rule' on '$hc' must have the right $rights and no other right" \
      "delete the rule and run this again; restart the jobs and clients that use it"
    read_keys "$hc" "$kind"
    return
  fi
  changed create "rule '$rule' ($rights) on '$hc'"
  only_plan && return
  rule_az create "$hc" "$rule" --rights "$rights" -o none || explain
  read_keys "$hc" "$kind"
}

# The stored tunnel key is kept so that running agents and clients can still connect to new ones. A new hybrid connection
# has no running agents or clients, so it gets a new key, even if a deleted one with the same name left secrets behind.
choose_tunnel_key() {
  local hc=$1 key="$WORK/$1/key" alone
  alone=$(folder "$hc" tunnel-key)/stored
  if is_new "$hc"; then
    new_tunnel_key "$key"
  elif [ -s "$alone" ]; then
    cp "$alone" "$key"
  elif ! keep_tunnel_key "$(folder "$hc" agent)/stored" "$key" &&
    ! keep_tunnel_key "$(folder "$hc" client)/stored" "$key"; then
    new_tunnel_key "$key"
  fi
}

# A stored connection string is current if it contains one of the rule's two keys (during a rotation: the secondary) and
# the tunnel key. A current secret is not written, so it gets no new version.
ensure_secret() {
  local hc=$1 kind=$2 dir key
  dir=$(folder "$hc" "$kind")
  if [ "$kind" = tunnel-key ]; then
    if cmp -s "$WORK/$hc/key" "$dir/stored"; then return; fi
    cp "$WORK/$hc/key" "$dir/wanted"
  fi
  for key in secondary primary; do
    if [ -s "$dir/$key" ]; then
      join "$dir/$key" "$WORK/$hc/key" >"$dir/wanted"
      if cmp -s "$dir/wanted" "$dir/stored"; then return; fi
    fi
  done
  changed store "secret '$(secret_name "$hc" "$kind")' in Key Vault '$VAULT'"
  : >"$WORK/$hc/stale"
  # The template writes only the two connection strings.
  if [ -n "$DRY_RUN" ] || { [ -n "$BICEP" ] && [ "$kind" != tunnel-key ]; }; then return; fi
  write_secret "$hc" "$kind" "$dir/wanted"
}

ensure_roles() {
  local hc=$1 kind=$2 id=$3 type=$4 role=$5 sibling secret
  [ -n "$id" ] || return 0
  secret=$(secret_name "$hc" "$(if [ -n "$ENTRA" ]; then printf tunnel-key; else printf %s "$kind"; fi)")
  for sibling in $(siblings "$hc"); do
    ensure_role "$id" "$type" "$role" "$NAMESPACE_ID/hybridConnections/$sibling" \
      "$(if is_new "$sibling"; then printf 1; fi)" "$BICEP" \
      "role Azure Relay $(if [ "$kind" = agent ]; then printf Listener; else printf Sender; fi) on '$sibling' to $id"
  done
  [ -n "$VAULT_HAS_ROLES" ] || return 0
  # The template assigns the role on a secret only when it writes the secret.
  ensure_role "$id" "$type" "$ROLE_SECRET_USER" "$VAULT_ID/secrets/$secret" '' \
    "$(if [ -n "$BICEP" ] && [ -e "$WORK/$hc/stale" ]; then printf 1; fi)" \
    "role Key Vault Secrets User on secret '$secret' to $id"
}

# ensure_role ID TYPE ROLE SCOPE IS_NEW DEPLOYED SENTENCE: DEPLOYED means that main.bicep will assign the role.
ensure_role() {
  local id=$1 type=$2 role=$3 scope=$4 is_new=$5
  if [ -z "$is_new" ]; then
    must_az role assignment list --assignee-object-id "$id" --role "$role" --scope "$scope" \
      --fill-principal-name false --fill-role-definition-name false --query '[].id' -o tsv
    if [ -n "$(answer)" ]; then return; fi
  fi
  changed assign "$7"
  [ -n "$DRY_RUN$6" ] || must_az role assignment create --assignee-object-id "$id" --assignee-principal-type "$type" \
    --role "$role" --scope "$scope" -o none
}

# --- next steps ------------------------------------------------------------------------------------------------------

next_steps() {
  local secret name
  local right="Key Vault Secrets User on the secret"
  [ -n "$VAULT_HAS_ROLES" ] || right="an access policy in '$VAULT' with the secret permission 'get'"
  if [ -n "$ENTRA" ]; then
    secret=$(secret_name "$1" tunnel-key) name=$(name_with_size "$1")
    cat <<TEXT

'$1' is ready. For the job (its identity needs Azure Relay Listener, and $right):
  environment: RELAY_NAMESPACE=$NAMESPACE KEY_VAULT_URL=$VAULT_URI RELAY_TUNNEL_KEY_SECRET=$secret
  arguments:   --is-debug true --debug-relay-connection-name $name
On your laptop (you need Azure Relay Sender, and $right), run:
  relay-client --hc $name --namespace $NAMESPACE --key-vault $VAULT --tunnel-key-secret $secret --ports 5678
TEXT
    return
  fi
  cat <<TEXT

'$1' is ready. For the job (its identity needs $right):
  environment: KEY_VAULT_URL=$VAULT_URI
  arguments:   --is-debug true --debug-relay-connection-name $1 --debug-relay-connection-string-secret $(secret_name "$1" agent)
On your laptop (you need $right), run:
  relay-client --hc $1 --key-vault $VAULT --connection-string-secret $(secret_name "$1" client) --ports 5678
TEXT
}

main "$@"
