// One developer's hybrid connection: its two rules, its roles and, if a tunnel key is given, its two secrets.

import { hybridConnectionType } from 'types.bicep'

@description('Existing Relay namespace.')
param namespaceName string

@description('The hybrid connection, and who may listen and send on it.')
param connection hybridConnectionType

@description('Existing Key Vault; empty stores no secrets.')
param keyVaultName string

@description('Resource group of the Key Vault.')
param keyVaultResourceGroup string

@description('Whether the Key Vault uses roles; false assigns none on its secrets.')
param keyVaultUsesRoles bool

@description('Tunnel key in base64; empty leaves the secrets as they are.')
@secure()
param tunnelKey string

var listenerRole = '26e0b698-aa6d-4085-9386-aadae190014d' // Azure Relay Listener
var senderRole = '26baccc8-eea7-41f1-98f4-1762cc7f685d' // Azure Relay Sender
var secretPrefix = connection.?secretPrefix ?? 'relay-${toLower(connection.name)}'
var storeStrings = !empty(keyVaultName) && !empty(tunnelKey)

resource namespace 'Microsoft.Relay/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource hybridConnection 'Microsoft.Relay/namespaces/hybridConnections@2026-01-01' = {
  parent: namespace
  name: connection.name
  properties: {
    // Without client authorization, anybody who knows the name could open the debugger port. This cannot be changed
    // later.
    requiresClientAuthorization: true
  }
}

resource listenRule 'Microsoft.Relay/namespaces/hybridConnections/authorizationRules@2026-01-01' = {
  parent: hybridConnection
  name: 'agent-listen'
  properties: {
    rights: ['Listen']
  }
}

resource sendRule 'Microsoft.Relay/namespaces/hybridConnections/authorizationRules@2026-01-01' = {
  parent: hybridConnection
  name: 'client-send'
  properties: {
    rights: ['Send']
  }
  // Must not be written at the same time as the other rule; see main.bicep.
  dependsOn: [listenRule]
}

resource mayListen 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in connection.?agentPrincipals ?? []: {
  scope: hybridConnection
  name: guid(hybridConnection.id, principal.id, listenerRole)
  properties: {
    principalId: principal.id
    principalType: principal.type
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', listenerRole)
  }
}]

resource maySend 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for principal in connection.?clientPrincipals ?? []: {
  scope: hybridConnection
  name: guid(hybridConnection.id, principal.id, senderRole)
  properties: {
    principalId: principal.id
    principalType: principal.type
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', senderRole)
  }
}]

module agentSecret 'secret.bicep' = if (storeStrings) {
  name: '${secretPrefix}-agent'
  scope: resourceGroup(keyVaultResourceGroup)
  params: {
    keyVaultName: keyVaultName
    secretName: '${secretPrefix}-agent'
    value: '${listenRule.listKeys().primaryConnectionString};TunnelKey=${tunnelKey}'
    readers: keyVaultUsesRoles ? (connection.?agentPrincipals ?? []) : []
  }
}

module clientSecret 'secret.bicep' = if (storeStrings) {
  name: '${secretPrefix}-client'
  scope: resourceGroup(keyVaultResourceGroup)
  params: {
    keyVaultName: keyVaultName
    secretName: '${secretPrefix}-client'
    value: '${sendRule.listKeys().primaryConnectionString};TunnelKey=${tunnelKey}'
    readers: keyVaultUsesRoles ? (connection.?clientPrincipals ?? []) : []
  }
}
