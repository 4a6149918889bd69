package problem_test

import (
	"os"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// B13: whoever is paged finds each code that a receipt can have in
// docs/operations.md, at the start of a row that says what to do.
func TestOperationsNamesEveryCodeOfAReceipt(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.TrimSpace(cells[2]) == "" {
			continue
		}
		for i, word := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				named[word] = true
			}
		}
	}
	for _, row := range problem.Table() {
		switch row.Kind {
		case problem.KindAnswer, problem.KindSource: // these come with a hint of their own
		case problem.KindRefused, problem.KindFailed, problem.KindUncertain:
			if !named[string(row.Code)] {
				t.Errorf("%s isn't named", row.Code)
			}
		}
	}
}
