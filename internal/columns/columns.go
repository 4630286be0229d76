// Package columns reads comma-separated text with a header line, by column name.
package columns

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Reader reads rows.
type Reader struct {
	rows   *csv.Reader
	names  []string
	column map[string]int
	most   int
	read   int
	row    []string
}

// NewReader reads the header line. It skips a byte order mark, as spreadsheets write it. Names ignore case and
// surrounding spaces. The reader refuses more than most rows.
func NewReader(r io.Reader, most int) (*Reader, error) {
	buffered := bufio.NewReader(r)
	if mark, _ := buffered.Peek(3); string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3) // just peeked
	}
	c := &Reader{rows: csv.NewReader(buffered), column: map[string]int{}, most: most}
	var err error
	if c.names, err = c.rows.Read(); err != nil {
		return nil, fmt.Errorf("no header line: %w", err)
	}
	c.rows.ReuseRecord = true
	for i := range c.names {
		c.column[c.Name(i)] = i
	}
	return c, nil
}

// Header returns the header line.
func (c *Reader) Header() string { return strings.Join(c.names, ",") }

// Name returns a column's name.
func (c *Reader) Name(column int) string { return strings.ToLower(strings.TrimSpace(c.names[column])) }

// Find returns the columns with these names, or nil if any is missing.
func (c *Reader) Find(names ...string) []int {
	at := make([]int, 0, len(names))
	for _, name := range names {
		i, ok := c.column[name]
		if !ok {
			return nil
		}
		at = append(at, i)
	}
	return at
}

// Next reads the next row. It returns io.EOF after the last.
func (c *Reader) Next() (err error) {
	if c.row, err = c.rows.Read(); err != nil {
		return err
	}
	if c.read++; c.read > c.most {
		return fmt.Errorf("line %d: more than %d samples", c.Line(), c.most)
	}
	return nil
}

// Line returns the row's line number.
func (c *Reader) Line() int {
	line, _ := c.rows.FieldPos(0)
	return line
}

// Text returns the row's text in a column.
func (c *Reader) Text(column int) string { return c.row[column] }

// Number returns the row's number in a column. Only finite numbers are accepted.
func (c *Reader) Number(column int) (float64, error) {
	text := strings.TrimSpace(c.row[column])
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%.40q is not a number", text)
	}
	return v, nil
}
