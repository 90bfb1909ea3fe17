# shellcheck shell=bash
# Functions shared by create_relay.sh, rotate_keys.sh and delete_relay.sh; sourced, not run. Works with bash 3.2 (macOS).
#
# Keys are never stored in shell variables, arguments or environment variables. `az` writes them to files with mode 0600
# in one private directory. They are compared and joined there, and passed back to `az` with `--file`. So `ps`, `bash -x`
# and CI logs cannot show a key. The directory is removed whenever a script exits.
#
# Exit codes with the same meaning as in relay_core/exit_codes.py have the same number:
#   0 success   1 az failed   2 invalid command line   3 invalid configuration   4 not signed in, or not permitted
#   5 no such namespace, hybrid connection or rule   6 Azure is unreachable or too busy   130 Ctrl-C

# Names of the two authorization rules on each hybrid connection; main.bicep uses the same names.
LISTEN_RULE=agent-listen
SEND_RULE=client-send

# Six attempts with doubling pauses take about one minute; a concurrent write to a rule takes only seconds.
MAX_ATTEMPTS=6
RETRY_SECONDS=${RELAY_INFRA_RETRY_SECONDS:-2}

GROUP='' NAMESPACE='' HCS='' VAULT='' SUBSCRIPTION='' DRY_RUN=''
PROGRAM=${0##*/}
WORK=''

# shellcheck source=infra/family.sh
. "$(dirname "${BASH_SOURCE[0]}")/family.sh"

# --- output and confirmation ---------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }
note() { printf '%s: %s\n' "$PROGRAM" "$*" >&2; }

# die CODE SENTENCE [HINT]
die() {
  printf '%s: error: %s.%s\n' "$PROGRAM" "$2" "${3:+ hint: $3}" >&2
  exit "$1"
}

usage_error() { die 2 "$1" "see '$PROGRAM --help'"; }

# changed VERB THING: prints one line per change; in a dry run, the line states what would change.
CHANGES=0
changed() {
  CHANGES=$((CHANGES + 1))
  if [ -n "$DRY_RUN" ]; then say "would $1 $2"; else say "$1 $2"; fi
}

# confirm QUESTION: returns if the user confirms, and exits otherwise; the option --yes sets YES.
YES=''
confirm() {
  [ -z "$YES" ] && [ -z "$DRY_RUN" ] || return 0
  [ -t 0 ] || die 2 "confirmation is required, but stdin is not a terminal" "add --yes to continue without confirmation"
  local answer=''
  printf '%s [y/N] ' "$1" >&2
  read -r answer || true
  case "$answer" in
    y | Y | yes | Yes | YES) ;;
    *) die 1 "nothing was changed" "answer 'y', or add --yes" ;;
  esac
}

# --- command line --------------------------------------------------------------------------------------------------

# common_option "$@": parses an option that all scripts have; CONSUMED is the number of words of the option.
common_option() {
  # shellcheck disable=SC2034  # the scripts read it
  CONSUMED=2
  case "$1" in
    -g | --resource-group) need_value "$@" && GROUP=$2 ;;
    -n | --namespace) need_value "$@" && NAMESPACE=$2 ;;
    --hc) need_value "$@" && add_hc "$2" ;;
    --key-vault) need_value "$@" && VAULT=$2 ;;
    --subscription) need_value "$@" && SUBSCRIPTION=$2 ;;
    --dry-run)
      DRY_RUN=1
      # shellcheck disable=SC2034
      CONSUMED=1
      ;;
    -h | --help) usage && exit 0 ;;
    *) return 1 ;;
  esac
}

need_value() {
  if [ $# -lt 2 ] || [ -z "$2" ]; then usage_error "option $1 needs a value"; fi
}

# HCS: names separated by blanks, in the user's order, without duplicates (Azure ignores case).
add_hc() {
  matches "$1" '^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$' ||
    die 2 "invalid hybrid connection name: '$1'" \
      "use 1 to 100 letters, digits, '.', '_' and '-', with a letter or digit at both ends"
  case " $(lower "$HCS") " in
    *" $(lower "$1") "*) ;;
    *) HCS="${HCS:+$HCS }$1" ;;
  esac
}

check_names() {
  [ -n "$GROUP" ] || usage_error "--resource-group is missing"
  [ -n "$NAMESPACE" ] || usage_error "--namespace is missing"
  matches "$NAMESPACE" '^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]$' ||
    die 2 "invalid Relay namespace name: '$NAMESPACE'" \
      "use 6 to 50 letters, digits and '-', starting with a letter; the address becomes <name>.servicebus.windows.net"
  [ -z "$VAULT" ] || matches "$VAULT" '^[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]$' ||
    die 2 "invalid Key Vault name: '$VAULT'" "pass only the name, not the URL: 3 to 24 letters, digits and '-'"
}

matches() { [[ $1 =~ $2 ]]; }
lower() { printf '%s' "$1" | tr '[:upper:]' '[:lower:]'; }

# --- start and end -------------------------------------------------------------------------------------------------

begin() {
  umask 077
  WORK=$(mktemp -d "${TMPDIR:-/tmp}/relay-debug.XXXXXX") || die 1 "cannot create a temporary directory" "set TMPDIR"
  trap 'rm -rf "$WORK"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' HUP TERM
  command -v az >/dev/null 2>&1 ||
    die 3 "the Azure CLI 'az' is not on the PATH" "install it (https://aka.ms/azure-cli), then run 'az login'"
  must_az account show --query name -o tsv
}

# --- az ------------------------------------------------------------------------------------------------------------

# run_az ARGUMENTS: runs az with stdout in $WORK/out and stderr in $WORK/err; retries while Azure reports that it is busy.
# Returns az's exit status.
run_az() {
  local attempt=1 pause=$RETRY_SECONDS status
  AZ_COMMAND="$1 $2"
  while :; do
    status=0
    az "$@" --only-show-errors ${SUBSCRIPTION:+--subscription "$SUBSCRIPTION"} \
      >"$WORK/out" 2>"$WORK/err" </dev/null || status=$?
    if [ "$status" -eq 0 ] || ! azure_is_busy || [ "$attempt" -ge "$MAX_ATTEMPTS" ]; then return "$status"; fi
    note "Azure is busy with an earlier change; retrying ($attempt of $((MAX_ATTEMPTS - 1)))"
    sleep "$pause"
    attempt=$((attempt + 1)) pause=$((pause * 2))
  done
}

# Concurrent writes to the rules of a namespace fail with 429 and SubCode=40901. Requests for a secret that was just
# deleted or recovered fail with 409 for a few seconds.
azure_is_busy() {
  complaint 'SubCode=40901|TooManyRequests|ObjectIsBeing(Recovered|Deleted)|ServiceUnavailable|GatewayTimeout|ServerBusy'
}

complaint() { grep -Eq -- "$1" "$WORK/err"; }
answer() { cat "$WORK/out"; }

must_az() { run_az "$@" || explain; }

# found ARGUMENTS: returns 1 if Azure reports that the resource does not exist; exits on any other error.
found() {
  local status=0
  run_az "$@" || status=$?
  [ "$status" -eq 0 ] && return 0
  missing "$status" || explain
  return 1
}

# missing STATUS: whether the last failure of az means "not found". Only some commands exit with status 3 after a 404:
# `keyvault secret show` does, but `show-deleted` and `delete` exit with 1, and so does `keyvault show` if no vault in the
# subscription has the name. After other statuses than 3, check the error code in the message.
missing() {
  complaint 'SubscriptionNotFound' && return 1
  [ "$1" -eq 3 ] ||
    complaint "^(ERROR: )?(\\((Secret|Vault|Resource|ResourceGroup|ParentResource)NotFound\\)|The Vault '.*' not found within)"
}

# Exits with one sentence and a hint about the last failure of az. az's messages contain no secrets, and only their first
# line is shown.
explain() {
  local first area=${AZ_COMMAND%% *}
  first=$(sed -n -e 's/^ERROR: //' -e '/./{p;q;}' "$WORK/err" | tr -d '\r')
  if complaint 'az login|AADSTS'; then
    die 4 "you are not signed in to Azure" "run 'az login', choose the subscription, then run this again"
  elif complaint "SubscriptionNotFound|Subscription '.*' not found"; then
    die 3 "subscription '${SUBSCRIPTION:-selected in az}' was not found in your account" \
      "run 'az account list -o table' to list your subscriptions"
  elif complaint 'MissingSubscriptionRegistration'; then
    die 3 "the subscription is not registered for Microsoft.Relay" \
      "run this once per subscription: az provider register --namespace Microsoft.Relay --wait"
  elif complaint 'Bicep (CLI|version)|BicepLatestRelease|"bicep" executable'; then
    die 3 "az has no Bicep compiler and cannot download one" \
      "run 'az bicep install' on a network that can reach aka.ms and downloads.bicep.azure.com, or omit --bicep"
  elif complaint 'PrincipalNotFound'; then
    die 3 "cannot assign a role: ${first%%. *}" \
      "use the object id, not the client id; if the identity was just created, run this again in a minute"
  elif [ "$area" = keyvault ] && complaint '\(Forbidden\)|\(AccessDenied\)'; then
    explain_vault "$first"
  elif complaint 'Forbidden|AuthorizationFailed|not authorized|not have authorization'; then
    die 4 "Azure refused 'az $AZ_COMMAND' ($first)" "see infra/README.md for the roles that this script needs"
  elif azure_is_busy; then
    die 6 "Azure is still busy after $MAX_ATTEMPTS attempts to run 'az $AZ_COMMAND'" "run this again; completed steps are skipped"
  elif complaint 'Failed to resolve|Name or service not known|Max retries exceeded|connect to proxy|[Cc]onnection (error|refused|aborted)'; then
    die 6 "'az $AZ_COMMAND' cannot reach Azure" \
      "check the network, HTTPS_PROXY and the name of the Key Vault; a Key Vault with a private endpoint is reachable only inside its network"
  fi
  die 1 "'az $AZ_COMMAND' failed ($first)" "fix the cause and run this again; completed steps are skipped"
}

# explain_vault FIRST_LINE: exits with the reason for a refusal by the vault. A vault with access policies ignores roles.
explain_vault() {
  if complaint 'ForbiddenByFirewall|ForbiddenByConnection'; then
    die 4 "the firewall of Key Vault '$VAULT' blocks this machine ($1)" \
      "allow this machine's IP address, or run this inside the network of the vault's private endpoint"
  elif complaint 'ForbiddenByPolicy|does not have secrets [a-z]+ permission'; then
    die 4 "Key Vault '$VAULT' refused 'az $AZ_COMMAND': its access policies do not allow it" \
      "run: az keyvault set-policy -n $VAULT --object-id \"\$(az ad signed-in-user show --query id -o tsv)\" \
--secret-permissions get list set delete recover; then run this again; completed steps are skipped"
  fi
  die 4 "Key Vault '$VAULT' refused 'az $AZ_COMMAND' ($1)" \
    "make sure that you have the role 'Key Vault Secrets Officer' on the vault (a new assignment takes up to 5 minutes to take \
effect), then run this again; completed steps are skipped"
}

# --- namespace, hybrid connection, rules -----------------------------------------------------------------------------

# namespace_exists: writes the region and the resource id to $WORK/out, one per line.
namespace_exists() { found relay namespace show -g "$GROUP" -n "$NAMESPACE" --query '[location,id]' -o tsv; }

# hc_exists HC: writes requiresClientAuthorization, the number of connected listeners and userMetadata to $WORK/out, one per
# line.
hc_exists() {
  found relay hyco show -g "$GROUP" --namespace-name "$NAMESPACE" -n "$1" \
    --query '[requiresClientAuthorization,listenerCount,userMetadata]' -o tsv
}

# rule_az VERB HC RULE [ARGUMENTS]: runs an `az relay hyco authorization-rule` command.
rule_az() {
  local verb=$1 hc=$2 rule=$3
  shift 3
  # shellcheck disable=SC2086  # the verb is one or two words: `show`, `keys list`
  run_az relay hyco authorization-rule $verb -g "$GROUP" --namespace-name "$NAMESPACE" \
    --hybrid-connection-name "$hc" -n "$rule" "$@"
}

# rule_exists HC RULE: writes the rule's rights to $WORK/out, one per line.
rule_exists() {
  local status=0
  rule_az show "$1" "$2" --query rights -o tsv || status=$?
  [ "$status" -eq 0 ] && return 0
  missing "$status" || explain
  return 1
}

rule_of() { if [ "$1" = agent ]; then printf %s "$LISTEN_RULE"; else printf %s "$SEND_RULE"; fi; }
rights_of() { if [ "$1" = agent ]; then printf Listen; else printf Send; fi; }

# read_keys HC KIND: writes the rule's two connection strings to the files `primary` and `secondary` of its directory.
read_keys() {
  local dir
  dir=$(folder "$1" "$2")
  rule_az 'keys list' "$1" "$(rule_of "$2")" --query '[primaryConnectionString,secondaryConnectionString]' -o tsv ||
    explain
  sed -n 1p "$WORK/out" | tr -d '\r\n' >"$dir/primary"
  sed -n 2p "$WORK/out" | tr -d '\r\n' >"$dir/secondary"
  if [ ! -s "$dir/primary" ] || [ ! -s "$dir/secondary" ]; then
    die 1 "Azure returned no keys for rule '$(rule_of "$2")' of '$1'" "run this again"
  fi
}

# --- Key Vault secrets -----------------------------------------------------------------------------------------------

# folder HC KIND: creates and prints the private directory for one secret of a hybrid connection. KIND is agent or client
# for a connection string, and tunnel-key for a tunnel key without a connection string, for use with Entra ID.
folder() {
  mkdir -p "$WORK/$1/$2"
  printf %s "$WORK/$1/$2"
}

# secret_prefix HC: relay-<hc>. Names of secrets can contain only letters, digits and '-'; for a hybrid connection with
# other characters, a checksum distinguishes 'a.b' from 'a_b'.
secret_prefix() {
  local name sum
  name=$(lower "$1")
  if matches "$name" '^[a-z0-9-]+$'; then
    printf 'relay-%s' "$name"
  else
    sum=$(printf %s "$name" | cksum)
    printf 'relay-%s-%08x' "$(printf %s "$name" | tr -c 'a-z0-9-' '-')" "${sum%% *}"
  fi
}
secret_name() { printf '%s-%s' "$(secret_prefix "$1")" "$2"; }

# read_secret HC KIND: writes the stored value to the file `stored` of its directory. Returns 1 if there is no such secret.
# Exits if the secret contains something else: it belongs to someone else and must not be replaced or deleted.
read_secret() {
  local name file
  name=$(secret_name "$1" "$2") file=$(folder "$1" "$2")/stored
  rm -f "$file"
  found keyvault secret show --vault-name "$VAULT" -n "$name" --query value -o tsv || return 1
  tr -d '\r\n' <"$WORK/out" >"$file"
  : >"$WORK/out"
  if [ "$2" = tunnel-key ]; then
    is_tunnel_key "$file" || die 3 "secret '$name' in Key Vault '$VAULT' is not a tunnel key" \
      "use another Key Vault, or rename or delete that secret"
  elif ! same_name "$(field Endpoint "$file" | sed 's|^sb://||; s|[.:/].*||')" "$NAMESPACE" ||
    ! same_name "$(field EntityPath "$file")" "$1"; then
    die 3 "secret '$name' in Key Vault '$VAULT' is not the connection string of '$1' in '$NAMESPACE'" \
      "use another Key Vault, or rename or delete that secret"
  fi
}

same_name() { [ "$(lower "$1")" = "$(lower "$2")" ]; }

# field NAME FILE: prints one field of the connection string in FILE.
field() { tr ';' '\n' <"$2" | sed -n "s/^$1=//p"; }

# without_tunnel_key FILE: prints the connection string in FILE without its TunnelKey, as Azure returned it.
without_tunnel_key() { tr ';' '\n' <"$1" | sed '/^TunnelKey=/d' | paste -s -d ';' - | tr -d '\n'; }

# keep_tunnel_key FROM TO: copies the tunnel key from a stored connection string; returns 1 if it contains no valid one.
keep_tunnel_key() {
  [ -s "$1" ] || return 1
  field TunnelKey "$1" | tr -d '\n' >"$2"
  is_tunnel_key "$2"
}

# is_tunnel_key FILE: whether FILE contains 32 bytes in base64 and nothing else.
is_tunnel_key() { grep -Eqx '[A-Za-z0-9+/]{43}=' "$1"; }

new_tunnel_key() { head -c 32 /dev/urandom | base64 | tr -d '\n' >"$1"; }

# join CONNECTION_STRING TUNNEL_KEY: prints the connection string with the tunnel key; both arguments are files.
join() {
  cat "$1"
  printf ';TunnelKey='
  cat "$2"
}

# write_secret HC KIND FILE
write_secret() {
  local content='relay-debug connection string'
  if [ "$2" = tunnel-key ]; then content='relay-debug tunnel key'; fi
  must_az keyvault secret set --vault-name "$VAULT" -n "$(secret_name "$1" "$2")" --file "$3" --encoding utf-8 \
    --content-type "$content" -o none
}
