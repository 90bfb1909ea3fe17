// Shapes of the parameters that main.bicep and its modules share.

@export()
@description('A principal that gets a role.')
type principalType = {
  @description('Object id of the user, group, service principal or managed identity.')
  id: string

  @description('Type of the principal. ServicePrincipal includes managed identities.')
  type: 'User' | 'Group' | 'ServicePrincipal'
}

@export()
@description('One developer.')
type hybridConnectionType = {
  @description('Name of the hybrid connection: the --hc of relay-client.')
  @minLength(1)
  @maxLength(100)
  name: string

  @description('Number of hybrid connections, for more than 25 nodes: one for each 25. With 3, they are <name>, <name>-1 and <name>-2, and agents and clients use them under the one name. Default: 1.')
  @minValue(1)
  @maxValue(200)
  size: int?

  @description('Start of the two secret names, <prefix>-agent and <prefix>-client. Default: relay-<name>; set this if the name has characters other than letters, digits and dashes.')
  secretPrefix: string?

  @description('Identities of the jobs: Azure Relay Listener on the hybrid connection, Key Vault Secrets User on the secret of the agent.')
  agentPrincipals: principalType[]?

  @description('The developer: Azure Relay Sender on the hybrid connection, Key Vault Secrets User on the secret of the client.')
  clientPrincipals: principalType[]?
}
