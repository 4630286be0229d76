package main

import (
	"bytes"
	"encoding/json"
)

// dashboard describes a Grafana dashboard.
type dashboard struct {
	file, title string // without extension
	// instances is the metric that supplies the values of the variable $instance.
	instances string
	rows      []row
}

// row is a titled group of panels, three per line.
type row struct {
	title  string
	panels []panel
}

// panel shows queries over time.
type panel struct {
	title string
	help  string
	unit  string // Grafana's name of the unit
	kind  string // stat, heatmap or state-timeline; default timeseries
	max   float64
	from  []query
}

// query is a PromQL expression; $instance stands for the selected instances.
type query struct {
	expr   string
	legend string
}

// Panel sizes in columns of Grafana's grid.
const (
	gridWidth  = 24
	panelWidth = 8
	statWidth  = 4
	height     = 8
	statHeight = 4
)

type object = map[string]any

// json returns the dashboard in the format of Grafana's provisioning.
func (d dashboard) json() []byte {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	id, y := 0, 0
	add := func(p object, x, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range d.rows {
		add(object{"type": "row", "title": r.title, "collapsed": false, "panels": []object{}}, 0, gridWidth, 1)
		y++
		x, line := 0, 0
		for _, p := range r.panels {
			w, h := panelWidth, height
			if p.kind == "stat" {
				w, h = statWidth, statHeight
			}
			if x+w > gridWidth || line != 0 && line != h {
				x, y = 0, y+line
			}
			o := p.json()
			o["datasource"] = source
			add(o, x, w, h)
			x, line = x+w, h
		}
		y += line
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(object{
		"uid": d.file, "title": d.title, "tags": []string{"holocast"}, "schemaVersion": 39, "version": 1, "editable": true,
		"refresh": "5s", "time": object{"from": "now-15m", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
		"annotations": object{"list": []object{}}, "links": []object{{
			"type": "dashboards", "title": "Holocast", "tags": []string{"holocast"}, "asDropdown": true, "keepTime": true,
		}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": object{}},
			{
				"name": "instance", "label": "Instance", "type": "query", "datasource": source, "refresh": 2, "sort": 1,
				"query": "label_values(" + d.instances + ", instance)", "multi": true, "includeAll": true, "allValue": ".*",
				"current": object{"text": "All", "value": "$__all"},
			},
		}},
		"panels": panels,
	}); err != nil {
		panic(err) // maps and strings always marshal
	}
	return b.Bytes()
}

func (p panel) json() object {
	kind := p.kind
	if kind == "" {
		kind = "timeseries"
	}
	var targets []object
	for i, q := range p.from {
		t := object{"refId": string(rune('A' + i)), "expr": q.expr, "legendFormat": q.legend, "range": true}
		if kind == "heatmap" {
			t["format"] = "heatmap"
		}
		targets = append(targets, t)
	}
	defaults := object{"unit": p.unit, "min": 0}
	if p.unit == "s" || p.unit == "none" {
		delete(defaults, "min") // offsets and rewards may be negative
	}
	if p.max != 0 {
		defaults["max"] = p.max
	}
	o := object{
		"type": kind, "title": p.title, "description": p.help, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	switch kind {
	case "timeseries":
		defaults["custom"] = object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
		o["options"] = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case "stat":
		o["options"] = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}},
			"graphMode":     "area",
			"colorMode":     "none",
		}
	case "state-timeline":
		defaults["mappings"] = []object{{"type": "value", "options": object{
			"0": object{"text": "no", "color": "red"}, "1": object{"text": "yes", "color": "green"},
		}}}
		o["options"] = object{"showValue": "never", "mergeValues": true, "legend": object{"showLegend": false}}
	case "heatmap":
		o["options"] = object{
			"calculate": false, "yAxis": object{"unit": p.unit}, "color": object{"scheme": "Turbo", "steps": 64},
			"cellGap": 1, "legend": object{"show": true}, "tooltip": object{"mode": "single"},
		}
	}
	return o
}
