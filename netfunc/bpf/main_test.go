package bpf

import (
	"testing"

	"holocast/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
