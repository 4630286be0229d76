// Package api defines the HTTP interface between the controller and its edges: JSON types and a
// client. The controller serves the same as an OpenAPI document under /v1/openapi.json.
package api
