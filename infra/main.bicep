// The resources that one team needs to debug through Azure Relay: a namespace and, for each developer, a hybrid connection
// with a Listen rule for the jobs and a Send rule for the laptop. Optional resources are roles, Key Vault secrets, a private
// endpoint and diagnostics.
//
// No output and no plain parameter contains a key, because both are kept in the deployment history, which everyone who can
// read the resource group can see.

targetScope = 'resourceGroup'

import { hybridConnectionType } from 'modules/types.bicep'

@description('Name of the Relay namespace; its address becomes <name>.servicebus.windows.net.')
@minLength(6)
@maxLength(50)
param namespaceName string

@description('Azure region of all resources in this template. Choose the one nearest to the developers.')
param location string = resourceGroup().location

@description('Tags of the namespace and the private endpoint.')
param tags object = {}

@description('One hybrid connection per developer.')
@minLength(1)
param hybridConnections hybridConnectionType[]

@description('Whether the namespace accepts connections that do not use a private endpoint. Jobs and laptops need Enabled unless both are in the network of the private endpoint.')
@allowed(['Enabled', 'Disabled'])
param publicNetworkAccess string = 'Enabled'

@description('Existing Key Vault for the connection strings; if empty, no connection strings are stored.')
param keyVaultName string = ''

@description('Resource group of the Key Vault.')
param keyVaultResourceGroup string = resourceGroup().name

@description('Whether the Key Vault uses roles (enableRbacAuthorization). Set this to false for a vault with access policies: such a vault ignores roles, so no roles are assigned on its secrets, and each reader needs an access policy with the secret permission get.')
param keyVaultUsesRoles bool = true

@description('Tunnel keys (32 random bytes in base64), keyed by the name of the hybrid connection. Secrets are written only for the hybrid connections named here. create_relay.sh creates the keys.')
@secure()
param tunnelKeys object = {}

@description('Resource id of a subnet for a private endpoint; if empty, no private endpoint is created.')
param privateEndpointSubnetId string = ''

@description('Resource id of the private DNS zone privatelink.servicebus.windows.net; if empty, no name is registered.')
param privateDnsZoneId string = ''

@description('Resource id of a Log Analytics workspace for the events and metrics of the namespace; if empty, no events or metrics are sent.')
param logAnalyticsWorkspaceId string = ''

resource namespace 'Microsoft.Relay/namespaces@2026-01-01' = {
  name: namespaceName
  location: location
  tags: tags
  sku: {
    name: 'Standard'
    tier: 'Standard'
  }
  properties: {
    minimumTlsVersion: '1.2'
    publicNetworkAccess: publicNetworkAccess
  }
}

// These are deployed one by one, because the service refuses overlapping writes to the rules of a namespace (429,
// SubCode=40901).
@batchSize(1)
module connections 'modules/hybrid-connection.bicep' = [for connection in hybridConnections: {
  name: 'relay-debug-${uniqueString(namespaceName, connection.name)}'
  params: {
    namespaceName: namespace.name
    connection: connection
    keyVaultName: keyVaultName
    keyVaultResourceGroup: keyVaultResourceGroup
    keyVaultUsesRoles: keyVaultUsesRoles
    tunnelKey: tunnelKeys[?connection.name] ?? ''
  }
}]

resource privateEndpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = if (!empty(privateEndpointSubnetId)) {
  name: '${namespaceName}-relay'
  location: location
  tags: tags
  properties: {
    subnet: {
      id: privateEndpointSubnetId
    }
    privateLinkServiceConnections: [
      {
        name: 'relay'
        properties: {
          privateLinkServiceId: namespace.id
          groupIds: ['namespace']
        }
      }
    ]
  }
}

resource privateName 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = if (!empty(privateEndpointSubnetId) && !empty(privateDnsZoneId)) {
  parent: privateEndpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: 'servicebus'
        properties: {
          privateDnsZoneId: privateDnsZoneId
        }
      }
    ]
  }
}

resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (!empty(logAnalyticsWorkspaceId)) {
  scope: namespace
  name: 'relay-debug'
  properties: {
    workspaceId: logAnalyticsWorkspaceId
    logs: [
      {
        category: 'HybridConnectionsEvent'
        enabled: true
      }
      {
        category: 'VNetAndIPFilteringLogs'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'AllMetrics'
        enabled: true
      }
    ]
  }
}

@description('Host name that jobs and laptops connect to, on port 443.')
output host string = '${namespace.name}.servicebus.windows.net'

@description('Resource id of the namespace.')
output namespaceId string = namespace.id
