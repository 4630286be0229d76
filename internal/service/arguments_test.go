package service_test

import (
	"testing"

	"github.com/spf13/cobra"

	"holocast/internal/service"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		name string
		use  string
		args []string
		want string
	}{
		{"none", "status", nil, ""},
		{"all", "record URL FILE", []string{"a", "b"}, ""},
		{
			"first missing", "record URL FILE", nil,
			"URL is missing: holocast record URL FILE (holocast record --help has examples)",
		},
		{
			"second missing", "record URL FILE",
			[]string{"a"},
			"FILE is missing: holocast record URL FILE (holocast record --help has examples)",
		},
		{
			"too many", "record URL FILE",
			[]string{"a", "b", "c"},
			`"c" is one argument too many: holocast record URL FILE`,
		},
		{"optional missing", "check [FILE]", nil, ""},
		{
			"too many with an optional one", "check [FILE]",
			[]string{"a", "b"},
			`"b" is one argument too many: holocast check [FILE]`,
		},
		{"too many for none", "status", []string{"a"}, `"a" is one argument too many: holocast status`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent, c := &cobra.Command{Use: "holocast"}, &cobra.Command{Use: tt.use}
			parent.AddCommand(c)
			said := ""
			if err := service.Arguments(c, tt.args); err != nil {
				said = err.Error()
			}
			if said != tt.want {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}
