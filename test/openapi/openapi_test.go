// Package openapi_test holds docs/openapi.yaml to the code it describes, where
// that needs no running server; run.sh does the rest.
package openapi_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

const path = "../../docs/openapi.yaml"

var update = flag.Bool("update", false, "write the list of codes into docs/openapi.yaml")

type schema struct {
	Enum       []string          `yaml:"enum"`
	Properties map[string]schema `yaml:"properties"`
	Maximum    int64             `yaml:"maximum"`
	MaxLength  int               `yaml:"maxLength"`
	MaxItems   int               `yaml:"maxItems"`
}

type document struct {
	Components struct {
		Schemas map[string]schema `yaml:"schemas"`
	} `yaml:"components"`
}

func read(t *testing.T) (document, []byte) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d, raw
}

// The document lists exactly the codes of the one table.
func TestCodesAreTheTable(t *testing.T) {
	var codes []string
	for _, row := range problem.Table() {
		codes = append(codes, string(row.Code))
	}
	slices.Sort(codes)
	if *update {
		_, raw := read(t)
		list := regexp.MustCompile(`(?s)(    Code:\n[^\n]*\n      enum:).*$`)
		var b strings.Builder
		b.WriteString("$1\n")
		for _, code := range codes {
			fmt.Fprintf(&b, "        - %s\n", code)
		}
		if err := os.WriteFile(path, list.ReplaceAll(raw, []byte(b.String())), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, _ := read(t)
	if got := d.Components.Schemas["Code"].Enum; !slices.Equal(got, codes) {
		t.Errorf("the document's codes aren't the table's; `go test ./test/openapi -run TestCodes -update` writes them\ngot  %v\nwant %v", got, codes)
	}
}

func TestClosedListsAndBounds(t *testing.T) {
	d, _ := read(t)
	s := d.Components.Schemas
	var statuses, scopes []string
	for _, state := range receipt.States() {
		if status := string(state.Status()); !slices.Contains(statuses, status) {
			statuses = append(statuses, status)
		}
	}
	for _, scope := range token.Scopes() {
		scopes = append(scopes, string(scope))
	}
	documented := s["Answer"].Properties["status"].Enum
	slices.Sort(statuses)
	slices.Sort(documented)
	if !slices.Equal(documented, statuses) {
		t.Errorf("statuses %v, want %v", documented, statuses)
	}
	if got := s["Scope"].Enum; !slices.Equal(got, scopes) {
		t.Errorf("scopes %v, want %v", got, scopes)
	}
	for name, pair := range map[string][2]int64{
		"target":       {int64(s["Target"].MaxLength), httpapi.MaxTarget},
		"revision":     {s["CustomStart"].Properties["revision"].Maximum, httpapi.MaxRevision},
		"requester":    {int64(s["CustomStart"].Properties["requester"].MaxLength), httpapi.MaxRequester},
		"wait_s":       {s["CustomStatus"].Properties["wait_s"].Maximum, httpapi.MaxWait},
		"token's name": {int64(s["TokenCreate"].Properties["name"].MaxLength), httpapi.MaxTokenName},
		"errors":       {int64(s["Errors"].MaxItems), httpapi.MaxErrors},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d in the document, %d in the code", name, pair[0], pair[1])
		}
	}
}
