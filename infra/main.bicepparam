// Example: two developers, no roles, no secrets (create_relay.sh adds them). Replace the names and deploy it with
//   az deployment group create -g debug-rg --parameters infra/main.bicepparam
using './main.bicep'

param namespaceName = 'contoso-debug'

// To also assign the roles Azure Relay Listener and Sender, use existing object ids: a deployment with an unknown id
// fails with PrincipalNotFound. These commands print the ids of a developer and of a cluster's identity:
//   az ad signed-in-user show --query id -o tsv
//   az resource show ... -n cpu-cluster --query identity.principalId -o tsv
param hybridConnections = [
  {
    name: 'alice'
  }
  {
    name: 'bob'
    // agentPrincipals: [
    //   {
    //     id: '<object id of the identity of the jobs>'
    //     type: 'ServicePrincipal'
    //   }
    // ]
    // clientPrincipals: [
    //   {
    //     id: '<object id of the developer>'
    //     type: 'User'
    //   }
    // ]
  }
]
