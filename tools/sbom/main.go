// Command sbom writes a CycloneDX 1.5 document for several programs. It lists the modules that Go
// recorded in each binary, with version and checksum.
//
//	sbom --version v1.2.3 bin/relay bin/edge > sbom.cdx.json
//
// cyclonedx-gomod does not suffice, since it writes one document per program and lists the patched
// quic-go as "./build/quic-go (devel)", which hides it from vulnerability scanners.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	version := flag.String("version", "development", "version of Holocast")
	flag.Parse()
	if err := run(os.Stdout, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

type document struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version,omitempty"`
	PURL       string     `json:"purl,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func run(w io.Writer, version string, programs []string) error {
	if len(programs) == 0 {
		return errors.New("no programs given; list their files")
	}
	d := document{
		Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata: metadata{component{Type: "application", Ref: "holocast", Name: "holocast", Version: version}},
	}
	known := map[string]bool{}
	all := dependency{Ref: "holocast"}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		name := filepath.Base(path)
		d.Components = append(d.Components, component{
			Type: "application", Ref: name, Name: name, Version: version, Properties: settings(info),
		})
		all.On = append(all.On, name)
		one := dependency{Ref: name}
		modules := append([]*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}},
			info.Deps...)
		for _, m := range modules {
			c := module(m)
			one.On = append(one.On, c.Ref)
			if !known[c.Ref] {
				known[c.Ref] = true
				d.Components = append(d.Components, c)
			}
		}
		slices.Sort(one.On)
		d.Dependencies = append(d.Dependencies, one)
	}
	d.Dependencies = append(d.Dependencies, all)
	slices.SortFunc(d.Components, func(a, b component) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Ref, b.Ref))
	})
	slices.SortFunc(d.Dependencies, func(a, b dependency) int { return cmp.Compare(a.Ref, b.Ref) })
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

// module describes a linked module. A replaced module keeps its original name and version.
func module(m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		c.Properties = append(c.Properties, property{"holocast:go.sum", m.Sum})
	}
	if m.Replace != nil {
		// The path of a patched copy is meaningless elsewhere.
		c.Properties = append(c.Properties, property{"holocast:replaced", "patched at build time"})
	}
	return c
}

// settings returns a program's build settings.
func settings(info *debug.BuildInfo) (list []property) {
	for _, s := range info.Settings {
		if slices.Contains([]string{"GOOS", "GOARCH", "CGO_ENABLED", "vcs.revision", "vcs.modified"}, s.Key) {
			list = append(list, property{"holocast:" + s.Key, s.Value})
		}
	}
	return list
}
