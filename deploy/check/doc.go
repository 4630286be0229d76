// Package check tests the deployment files: Helm chart, compose file and Containerfile. It is a
// separate module to keep Helm's and Kubernetes' dependencies out of the programs.
package check
