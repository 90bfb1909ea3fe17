// Example: two developers, no secrets (create_relay.sh adds them). Deploy it with
//   az deployment group create -g debug-rg --parameters infra/main.bicepparam
using './main.bicep'

param namespaceName = 'contoso-debug'

param hybridConnections = [
  {
    name: 'alice'
  }
  {
    name: 'bob'
    agentPrincipals: [
      {
        id: '11111111-2222-3333-4444-555555555555'
        type: 'ServicePrincipal'
      }
    ]
    clientPrincipals: [
      {
        id: '66666666-7777-8888-9999-000000000000'
        type: 'User'
      }
    ]
  }
]
