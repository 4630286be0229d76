// Package contract checks HTTP answers against an OpenAPI 3.1 document.
package contract

import (
	"io"
	"mime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const location = "https://test.example/openapi.json"

// Document is an OpenAPI document.
type Document struct {
	compiler *jsonschema.Compiler
	paths    map[string]any
}

// Read reads a document.
func Read(t testing.TB, r io.Reader) *Document {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(location, v); err != nil {
		t.Fatal(err)
	}
	root, _ := v.(map[string]any)
	paths, _ := root["paths"].(map[string]any)
	if len(paths) == 0 {
		t.Fatal("the document has no paths")
	}
	return &Document{c, paths}
}

// Check checks that an answer to a request has a documented status, content type and form. For requests
// outside the documented paths it requires a problem document (RFC 9457).
func (d *Document) Check(t testing.TB, method, path string, status int, contentType string, body []byte) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	for template, item := range d.paths {
		operations, _ := item.(map[string]any)
		operation, ok := operations[strings.ToLower(method)].(map[string]any)
		if !ok || !matches(template, path) {
			continue
		}
		responses, _ := operation["responses"].(map[string]any)
		for _, key := range []string{strconv.Itoa(status), "default"} {
			if response, ok := responses[key].(map[string]any); ok {
				at := "#/paths/" + escape(template) + "/" + strings.ToLower(method) + "/responses/" + key
				d.checkResponse(t, at, response, contentType, body)
				return
			}
		}
		t.Errorf("%s %s: status %d is not documented", method, template, status)
		return
	}
	d.validate(t, "#/components/schemas/ErrorModel", body)
}

func (d *Document) checkResponse(
	t testing.TB, at string, response map[string]any, contentType string, body []byte,
) {
	t.Helper()
	content, _ := response["content"].(map[string]any)
	if len(content) == 0 {
		if len(body) > 0 {
			t.Errorf("%s: has a body: %s", at, body)
		}
		return
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if _, ok := content[kind]; err != nil || !ok {
		t.Errorf("%s: content type %q is not documented", at, contentType)
		return
	}
	d.validate(t, at+"/content/"+escape(kind)+"/schema", body)
}

func (d *Document) validate(t testing.TB, pointer string, body []byte) {
	t.Helper()
	schema, err := d.compiler.Compile(location + pointer)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", pointer, err, body)
	}
}

// matches reports whether a path is of the form of a template such as /viewers/{id}/kick.
func matches(template, path string) bool {
	return slices.EqualFunc(strings.Split(template, "/"), strings.Split(path, "/"), func(a, b string) bool {
		return a == b || strings.HasPrefix(a, "{") && b != ""
	})
}

// escape escapes a key for a JSON pointer in a fragment.
func escape(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
}
