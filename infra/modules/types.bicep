// Types of the parameters that main.bicep and its modules share.

@export()
@description('A principal to which a role is assigned.')
type principalType = {
  @description('Object id of the user, group, service principal or managed identity.')
  id: string

  @description('Type of the principal. ServicePrincipal includes managed identities.')
  type: 'User' | 'Group' | 'ServicePrincipal'
}

@export()
@description('The hybrid connection or family of one developer.')
type hybridConnectionType = {
  @description('Name of the hybrid connection, as passed to relay-client with --hc.')
  @minLength(1)
  @maxLength(100)
  name: string

  @description('Number of hybrid connections: one for each 25 nodes. If it is 3, they are named <name>, <name>-1 and <name>-2, and agents and clients use them under the single name <name>. Default: 1.')
  @minValue(1)
  @maxValue(200)
  size: int?

  @description('Prefix of the two secret names, <prefix>-agent and <prefix>-client. Default: relay-<name>; set this if the name contains characters other than letters, digits and dashes.')
  secretPrefix: string?

  @description('Identities of the jobs. Each gets Azure Relay Listener on the hybrid connection, and Key Vault Secrets User on the secret of the agent.')
  agentPrincipals: principalType[]?

  @description('Identities of the developer. Each gets Azure Relay Sender on the hybrid connection, and Key Vault Secrets User on the secret of the client.')
  clientPrincipals: principalType[]?
}
