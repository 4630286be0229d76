package record

import (
	"errors"
	"fmt"
	"path"
	"time"
)

// Config configures recording. The zero value records nothing and offers no recordings.
type Config struct {
	// Sessions are patterns (path.Match) of the names of the recorded sessions.
	Sessions []string `yaml:"sessions"`
	// Dir holds the recordings. "" turns recording off.
	Dir string `yaml:"dir"`
	// MaxDuration and a share of MaxBytes limit one file; a longer session continues in another.
	MaxDuration time.Duration `yaml:"maxDuration"`
	// MaxAge and MaxBytes limit the recordings; 0 means no limit. The oldest are deleted.
	MaxAge   time.Duration `yaml:"maxAge"`
	MaxBytes int64         `yaml:"maxBytes"`
	// MinFree is the free space, in bytes, below which recording pauses.
	MinFree int64 `yaml:"minFree"`
}

// Defaults of Config.
const (
	DefaultMaxDuration = time.Hour
	DefaultMinFree     = 1 << 30
)

// Validate returns an error that begins with the name of the invalid setting.
func (c *Config) Validate() error {
	for i, p := range c.Sessions {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return fmt.Errorf("record.sessions[%d]: %q is not a pattern such as studio/*", i, p)
		}
	}
	if len(c.Sessions) > 0 && c.Dir == "" {
		return errors.New("record.dir: recording needs a directory for the recordings")
	}
	return nil
}

// matches reports whether to record a session.
func (c *Config) matches(session string) bool {
	for _, p := range c.Sessions {
		if ok, _ := path.Match(p, session); ok {
			return true
		}
	}
	return false
}
