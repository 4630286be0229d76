// Package check tests what Holocast is deployed with: the Helm chart, the compose file and the
// Containerfile. It is a module of its own, so that the programs do not depend on Helm's and
// Kubernetes' modules.
package check
