// Package api defines the HTTP interface between the controller and its edges: JSON types and a
// client. The controller serves an OpenAPI description of it at /v1/openapi.json.
package api
