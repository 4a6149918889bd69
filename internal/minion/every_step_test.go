//go:build faults

package minion_test

import (
	"testing"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/minion"
)

// Every step, before and after, killed and done-but-told-failed.
func TestEveryStep(t *testing.T) {
	for _, step := range minion.Steps() {
		for _, phase := range []ledger.Phase{ledger.Before, ledger.After} {
			for _, action := range []string{"kill", "fail"} {
				c := crash{step, phase, action}
				t.Run(c.String(), func(t *testing.T) { strike(t, c) })
			}
		}
	}
}
