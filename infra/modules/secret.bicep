// One Key Vault secret with a connection string, and its readers. This is a separate module because the vault may be in
// another resource group.

import { principalType } from 'types.bicep'

@description('Existing Key Vault.')
param keyVaultName string

@description('Name of the secret.')
param secretName string

@description('The connection string of the first hybrid connection.')
@secure()
param connectionString string

@description('The keys of the other hybrid connections of a family: the array "others". The parameter is an object because an array cannot be a secure parameter.')
@secure()
param familyKeys object

@description('The tunnel key in base64.')
@secure()
param tunnelKey string

@description('Principals that may read this secret, but no other secret in the vault.')
param readers principalType[]

var familyField = empty(familyKeys.others) ? '' : ';FamilyKeys=${join(familyKeys.others, ',')}'
var secretsUserRole = '4633458b-17de-408a-b874-0445c86b69e6' // Key Vault Secrets User

resource vault 'Microsoft.KeyVault/vaults@2023-07-01' existing = {
  name: keyVaultName
}

resource secret 'Microsoft.KeyVault/vaults/secrets@2023-07-01' = {
  parent: vault
  name: secretName
  properties: {
    value: '${connectionString}${familyField};TunnelKey=${tunnelKey}'
    contentType: 'relay-debug connection string'
  }
}

resource mayRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for reader in readers: {
  scope: secret
  name: guid(secret.id, reader.id, secretsUserRole)
  properties: {
    principalId: reader.id
    principalType: reader.type
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', secretsUserRole)
  }
}]
