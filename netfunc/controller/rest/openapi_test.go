package rest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// document is the part of the OpenAPI document that the tests inspect.
type document struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas   map[string]schema          `json:"schemas"`
		Responses map[string]json.RawMessage `json:"responses"`
	} `json:"components"`
}

type schema struct {
	Ref        string            `json:"$ref"`
	Type       string            `json:"type"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	Enum       []string          `json:"enum"`
}

type operation struct {
	OperationID string              `json:"operationId"`
	Summary     string              `json:"summary"`
	Security    *[]any              `json:"security"`
	Responses   map[string]struct{} `json:"responses"`
}

func parsed(t *testing.T) document {
	t.Helper()
	b, err := openAPI()
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenAPIHasTheRoutes(t *testing.T) {
	d := parsed(t)
	want := map[string]route{}
	for _, r := range routes() {
		want[strings.ToLower(r.method)+" "+r.path] = r
	}
	ids := map[string]string{}
	for path, members := range d.Paths {
		for method, raw := range members {
			if method == "parameters" {
				continue
			}
			key := method + " " + path
			r, ok := want[key]
			if !ok {
				t.Errorf("%s is in the document, but not served", key)
				continue
			}
			delete(want, key)
			var op operation
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			if op.Summary == "" || op.OperationID == "" || ids[op.OperationID] != "" {
				t.Errorf("%s: summary %q, operationId %q (also of %s)", key, op.Summary, op.OperationID,
					ids[op.OperationID])
			}
			ids[op.OperationID] = key
			if free := op.Security != nil && len(*op.Security) == 0; free != (r.who == open) {
				t.Errorf("%s: served without credentials: %v; documented: %v", key, r.who == open, free)
			}
			if _, ok := op.Responses["default"]; !ok {
				t.Errorf("%s: no default response", key)
			}
		}
	}
	for key := range want {
		t.Errorf("%s is served, but not in the document", key)
	}
}

func TestOpenAPIHasTheTypes(t *testing.T) {
	d := parsed(t)
	types := map[string]reflect.Type{}
	for _, v := range []any{
		api.Edge{},
		api.Path{},
		api.Welcome{},
		api.Report{},
		api.Policy{},
		api.Route{},
		api.Uplink{},
		api.Observation{},
		api.Elimination{},
		api.Eliminations{},
		api.Outcome{},
		api.OutcomeList{},
		api.Reward{},
		api.Setting{},
		api.Flow{},
		api.Update{},
		api.EdgeStatus{},
		api.Decision{},
		api.Status{},
		api.Trigger{},
		api.EdgeList{},
		api.FlowList{},
		api.DecisionList{},
		api.Problem{},
	} {
		types[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	types["PathSet"] = reflect.TypeFor[pathset.Set]()
	for name := range d.Components.Schemas {
		if types[name] == nil {
			t.Errorf("schema %s is no type of the api package", name)
		}
	}
	for name, typ := range types {
		s, ok := d.Components.Schemas[name]
		if !ok {
			t.Errorf("type %s has no schema", name)
			continue
		}
		if typ.Kind() == reflect.Struct {
			same(t, name, s, typ)
		}
	}
}

// same compares an object's schema with a struct.
func same(t *testing.T, name string, s schema, typ reflect.Type) {
	t.Helper()
	members := fields(typ)
	var required []string
	for tag, f := range members {
		p, ok := s.Properties[tag]
		if !ok {
			t.Errorf("%s.%s is not in the document", name, tag)
			continue
		}
		options := strings.Split(f.Tag.Get("json"), ",")[1:]
		if !slices.Contains(options, "omitempty") && !slices.Contains(options, "omitzero") {
			required = append(required, tag)
		}
		want, ref := jsonType(f.Type, slices.Contains(options, "string"))
		if p.Ref != "" && strings.TrimPrefix(p.Ref, "#/components/schemas/") != ref || p.Ref == "" && p.Type != want {
			t.Errorf("%s.%s is %q %q in the document, %q %q in Go", name, tag, p.Type, p.Ref, want, ref)
		}
		if p.Items != nil {
			item, itemRef := jsonType(f.Type.Elem(), false)
			if p.Items.Ref != "" && strings.TrimPrefix(p.Items.Ref, "#/components/schemas/") != itemRef ||
				p.Items.Ref == "" && p.Items.Type != item {
				t.Errorf("%s.%s: items differ", name, tag)
			}
		}
	}
	for tag := range s.Properties {
		if _, ok := members[tag]; !ok {
			t.Errorf("%s.%s is in the document, but not in Go", name, tag)
		}
	}
	slices.Sort(required)
	got := slices.Sorted(slices.Values(s.Required))
	if name == "Problem" { // always filled in
		required = slices.DeleteFunc(required, func(s string) bool { return s == "detail" })
	}
	if !slices.Equal(got, required) {
		t.Errorf("%s: required %v in the document, %v in Go", name, got, required)
	}
}

// fields returns the JSON members of a struct, including embedded structs.
func fields(typ reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			maps.Copy(out, fields(f.Type))
			continue
		}
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out[tag] = f
	}
	return out
}

// jsonType returns the JSON type of a Go type, and the schema to which it would refer.
func jsonType(typ reflect.Type, quoted bool) (kind, ref string) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	ref = typ.Name()
	switch {
	case typ == reflect.TypeFor[time.Time](), typ.PkgPath() == "net/netip", quoted:
		return "string", ref
	case typ == reflect.TypeFor[pathset.Set]():
		return "array", "PathSet"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string", ref
	case reflect.Bool:
		return "boolean", ref
	case reflect.Float64:
		return "number", ref
	case reflect.Slice:
		return "array", ref
	case reflect.Struct, reflect.Map:
		return "object", ref
	}
	return "integer", ref
}

// The enumerations of the document match the program's.
func TestOpenAPIHasTheWords(t *testing.T) {
	d := parsed(t)
	words := func(schema, property string) []string {
		return slices.Sorted(slices.Values(d.Components.Schemas[schema].Properties[property].Enum))
	}
	modes := []string{"auto", "duplicate", "off", "redirect"}
	states := []string{"armed", "duplicating", "off", "redirected", "single", "trimmed"}
	for at, want := range map[[2]string][]string{
		{"Setting", "mode"}: modes, {"Flow", "mode"}: modes, {"Status", "mode"}: modes, {
			"Flow",
			"state",
		}: states, {"Decision", "state"}: states,
		{"Edge", "role"}: {"both", "receiver", "sender"},
	} {
		if got := words(at[0], at[1]); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", at, got, want)
		}
	}
}
