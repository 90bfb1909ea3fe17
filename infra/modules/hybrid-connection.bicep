// One developer's hybrid connection or family of hybrid connections, with two rules and the roles on each one. If a tunnel
// key is given, the module also writes the two secrets, which cover the whole family.

import { hybridConnectionType } from 'types.bicep'

@description('Existing Relay namespace.')
param namespaceName string

@description('The hybrid connection or family, and the principals that may listen and send on it.')
param connection hybridConnectionType

@description('Existing Key Vault; if empty, no secrets are stored.')
param keyVaultName string

@description('Resource group of the Key Vault.')
param keyVaultResourceGroup string

@description('Whether the Key Vault uses roles; if false, none are assigned on its secrets.')
param keyVaultUsesRoles bool

@description('Tunnel key in base64; if empty, the secrets remain unchanged.')
@secure()
param tunnelKey string

var listenerRole = '26e0b698-aa6d-4085-9386-aadae190014d' // Azure Relay Listener
var senderRole = '26baccc8-eea7-41f1-98f4-1762cc7f685d' // Azure Relay Sender
var secretPrefix = connection.?secretPrefix ?? 'relay-${toLower(connection.name)}'
var storeStrings = !empty(keyVaultName) && !empty(tunnelKey)
var size = connection.?size ?? 1
var agentPrincipals = connection.?agentPrincipals ?? []
var clientPrincipals = connection.?clientPrincipals ?? []

resource namespace 'Microsoft.Relay/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource hybridConnections 'Microsoft.Relay/namespaces/hybridConnections@2026-01-01' = [for index in range(0, size): {
  parent: namespace
  name: index == 0 ? connection.name : '${connection.name}-${index}'
  properties: {
    // Without client authorization, anybody who knows the name could open the debugger port. This cannot be changed
    // later.
    requiresClientAuthorization: true
    // The scripts use this to identify the family.
    userMetadata: index == 0 ? '' : 'relay-debug family ${toLower(connection.name)}'
  }
}]

@batchSize(1)
resource listenRules 'Microsoft.Relay/namespaces/hybridConnections/authorizationRules@2026-01-01' = [for index in range(0, size): {
  parent: hybridConnections[index]
  name: 'agent-listen'
  properties: {
    rights: ['Listen']
  }
}]

@batchSize(1)
resource sendRules 'Microsoft.Relay/namespaces/hybridConnections/authorizationRules@2026-01-01' = [for index in range(0, size): {
  parent: hybridConnections[index]
  name: 'client-send'
  properties: {
    rights: ['Send']
  }
  // These rules must not be written at the same time as the other rules; see main.bicep.
  dependsOn: [listenRules]
}]

// One assignment for each hybrid connection and principal.
resource mayListen 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, size * length(agentPrincipals)): {
  scope: hybridConnections[index % size]
  name: guid(hybridConnections[index % size].id, agentPrincipals[index / size].id, listenerRole)
  properties: {
    principalId: agentPrincipals[index / size].id
    principalType: agentPrincipals[index / size].type
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', listenerRole)
  }
}]

resource maySend 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, size * length(clientPrincipals)): {
  scope: hybridConnections[index % size]
  name: guid(hybridConnections[index % size].id, clientPrincipals[index / size].id, senderRole)
  properties: {
    principalId: clientPrincipals[index / size].id
    principalType: clientPrincipals[index / size].type
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', senderRole)
  }
}]

module agentSecret 'secret.bicep' = if (storeStrings) {
  name: '${secretPrefix}-agent'
  scope: resourceGroup(keyVaultResourceGroup)
  params: {
    keyVaultName: keyVaultName
    secretName: '${secretPrefix}-agent'
    connectionString: listenRules[0].listKeys().primaryConnectionString
    // A rule is valid for its own hybrid connection only, so the connection string contains the keys of all of them.
    familyKeys: {
      others: [for index in range(1, size - 1): listenRules[index].listKeys().primaryKey]
    }
    tunnelKey: tunnelKey
    readers: keyVaultUsesRoles ? agentPrincipals : []
  }
}

module clientSecret 'secret.bicep' = if (storeStrings) {
  name: '${secretPrefix}-client'
  scope: resourceGroup(keyVaultResourceGroup)
  params: {
    keyVaultName: keyVaultName
    secretName: '${secretPrefix}-client'
    connectionString: sendRules[0].listKeys().primaryConnectionString
    // A rule is valid for its own hybrid connection only, so the connection string contains the keys of all of them.
    familyKeys: {
      others: [for index in range(1, size - 1): sendRules[index].listKeys().primaryKey]
    }
    tunnelKey: tunnelKey
    readers: keyVaultUsesRoles ? clientPrincipals : []
  }
}
