# shellcheck shell=bash
# Deployment of main.bicep; sourced by create_relay.sh.

# Deploys everything that is missing. The parameters contain the tunnel keys, so they are passed in a 0600 file. The
# template writes secrets only for hybrid connections whose tunnel key is in the parameters.
deploy() {
  say "deploy main.bicep to resource group '$GROUP'"
  write_parameters >"$WORK/parameters.json"
  must_az deployment group create -g "$GROUP" -n "relay-debug-$NAMESPACE" \
    --template-file "$(dirname "${BASH_SOURCE[0]}")/main.bicep" --parameters "@$WORK/parameters.json" -o none
}

# check_names and add_hc have validated the names, so none of them needs escaping in JSON.
write_parameters() {
  local hc separator=''
  # shellcheck disable=SC2016  # "$schema" is the name of a field
  printf '{"$schema":"https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",'
  printf '"contentVersion":"1.0.0.0","parameters":{"namespaceName":{"value":"%s"},' "$NAMESPACE"
  printf '"location":{"value":"%s"},"keyVaultName":{"value":"%s"},' "$LOCATION" "$VAULT"
  printf '"keyVaultResourceGroup":{"value":"%s"},' "$VAULT_GROUP"
  printf '"keyVaultUsesRoles":{"value":%s},' "$(if [ -n "$VAULT_HAS_ROLES" ]; then printf true; else printf false; fi)"
  printf '"hybridConnections":{"value":['
  for hc in $HCS; do
    printf '%s{"name":"%s","secretPrefix":"%s"' "$separator" "$hc" "$(secret_prefix "$hc")"
    [ "$(cat "$WORK/$hc/size")" -eq 1 ] || printf ',"size":%s' "$(cat "$WORK/$hc/size")"
    [ -z "$AGENT_ID" ] || printf ',"agentPrincipals":[{"id":"%s","type":"%s"}]' "$AGENT_ID" "$AGENT_TYPE"
    [ -z "$CLIENT_ID" ] || printf ',"clientPrincipals":[{"id":"%s","type":"%s"}]' "$CLIENT_ID" "$CLIENT_TYPE"
    printf '}'
    separator=,
  done
  printf ']},"tunnelKeys":{"value":{'
  separator=''
  for hc in $HCS; do
    [ -e "$WORK/$hc/stale" ] || continue
    printf '%s"%s":"' "$separator" "$hc"
    cat "$WORK/$hc/key"
    printf '"'
    separator=,
  done
  printf '}}}}'
}
