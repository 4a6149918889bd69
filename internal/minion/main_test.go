package minion_test

import (
	"os"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/minion/miniontest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	miniontest.RemoveBuilt()
	os.Exit(code)
}

const threeStates = `
first:
  test.nop: []
second:
  cmd.run:
    - name: echo secret-word-4711
third:
  test.succeed_without_changes: []
`
