package wallclock_test

import (
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/test/sim/wallclock"
)

func TestStepMovesTheWallAlone(t *testing.T) {
	source := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	c := wallclock.New(func() time.Time { return source })
	before := c.Now()
	if !before.Equal(source) || before.Round(0).Format(time.RFC3339Nano) != source.Format(time.RFC3339Nano) {
		t.Fatalf("the clock reads %s at %s", before, source)
	}
	source = source.Add(90 * time.Second)
	c.Step(-48 * time.Hour)
	after := c.Now()
	if got := after.Sub(before); got != 90*time.Second {
		t.Errorf("monotonic: %s went by", got)
	}
	if got := after.Round(0).Sub(before.Round(0)); got != 90*time.Second-48*time.Hour {
		t.Errorf("wall: %s went by", got)
	}
	if !after.After(before) || after.Round(0).After(before.Round(0)) {
		t.Error("After doesn't use the monotonic reading")
	}
	if got := after.Add(time.Minute).Sub(before); got != 150*time.Second {
		t.Errorf("Add lost the monotonic reading: %s", got)
	}
}
