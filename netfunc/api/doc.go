// Package api is what the controller of the duplication pair and its edges say to
// each other over HTTP: the JSON types and a client. The OpenAPI document that the
// controller serves under /v1/openapi.json describes the same.
package api
