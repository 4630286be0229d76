package pause

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		failed := make(chan error, 1)
		began := time.Now()
		if err := Unless(failed, time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want nil after 1m", err, time.Since(began))
		}
		failed <- broken
		if err := Unless(failed, time.Minute); err != broken || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want %v at once", err, time.Since(began), broken)
		}
	})
}
