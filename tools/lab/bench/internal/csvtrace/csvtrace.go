// Package csvtrace reads recorded network throughput.
package csvtrace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Column returns a column of throughputs, converted from Mbit/s to bytes/s. It skips empty and NA
// fields.
func Column(file, column string) (v []float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("%s: no measurements", file)
	}
	at := -1
	for i, name := range rows[0] {
		if name == column {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("%s: no column %s", file, column)
	}
	for i, row := range rows[1:] {
		if row[at] == "" || row[at] == "NA" {
			continue
		}
		mbps, err := strconv.ParseFloat(row[at], 64)
		if err != nil || !(mbps >= 0) {
			return nil, errors.Join(fmt.Errorf("%s: line %d: %q is not a throughput", file, i+2, row[at]), err)
		}
		v = append(v, mbps*1e6/8)
	}
	return v, nil
}
