package httpapi_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
)

// ledgerDesk is a httpapi.Receipts by hand.
type ledgerDesk struct {
	calls    int
	list     httpapi.ListQuery
	settled  httpapi.ReconcileQuery
	source   bool
	failWith error
}

func (d *ledgerDesk) ReceiptsList(_ context.Context, q httpapi.ListQuery) (httpapi.ReceiptList, error) {
	d.calls++
	d.list = q
	return httpapi.ReceiptList{Epoch: "e1", Receipts: []httpapi.ReceiptRow{httpapi.RowOf(aReceipt(), true, false)}, Next: "n"}, d.failWith
}

func (d *ledgerDesk) ReceiptsShow(_ context.Context, _ string, source bool) (httpapi.ReceiptDetail, error) {
	d.calls++
	d.source = source
	return httpapi.DetailOf(aReceipt(), true, false), d.failWith
}

func (d *ledgerDesk) Evidence(context.Context, string) (httpapi.EvidenceAnswer, error) {
	d.calls++
	r := aReceipt()
	r.State, r.Code = receipt.Uncertain, problem.NoAnswer
	return httpapi.EvidenceAnswer{Answered: true, Receipt: httpapi.DetailOf(r, false, false), Next: "n"}, d.failWith
}

func (d *ledgerDesk) Reconcile(_ context.Context, q httpapi.ReconcileQuery) (httpapi.ReconcileAnswer, error) {
	d.calls++
	d.settled = q
	return httpapi.ReconcileAnswer{Settled: "operator", Receipt: httpapi.DetailOf(aReceipt(), false, true)}, d.failWith
}

func newDeskAPI(t *testing.T) (*api, *ledgerDesk) {
	t.Helper()
	desk := &ledgerDesk{}
	return newAPI(t, func(c *httpapi.Config) { c.Receipts = desk }), desk
}

// A23: over TLS there is no such entry point, whatever the token; and on the
// socket only root, or masterd's own user in a lab, gets in.
func TestReceiptsAreForOperators(t *testing.T) {
	desk := &ledgerDesk{}
	a := newAPI(t, func(c *httpapi.Config) { c.Receipts = desk; c.Lab, c.OwnUID = false, 12345 })
	bearer := a.tokens.text[token.Custom]
	for _, entry := range []string{"receipts_list", "receipts_show", "evidence", "reconcile"} {
		body := `{"request":"` + requestA + `"}`
		if g := a.postTLS(t, "/v1/operator/"+entry, "Bearer "+bearer, body); g.status != http.StatusNotFound || g.code() != "not_found" {
			t.Errorf("%s over TLS: %d %s", entry, g.status, g.raw)
		}
		if os.Geteuid() == 0 {
			continue
		}
		if g := a.post(t, "/v1/operator/"+entry, body); g.status != http.StatusForbidden {
			t.Errorf("%s as uid %d: %d %s", entry, os.Geteuid(), g.status, g.raw)
		}
	}
	if desk.calls != 0 {
		t.Errorf("%d calls got through", desk.calls)
	}
}

// What an operator says arrives as it was said, with who said it.
func TestReconcileArrives(t *testing.T) {
	a, desk := newDeskAPI(t)
	client := httpapi.NewClient(a.socket)
	q := httpapi.ReconcileQuery{
		Request: requestA, Outcome: "failed", Reason: "power", Observed: "line 1\r\nline 2\t.\n\n", Confirm: "web1", ServerGone: true,
	}
	answer, err := client.Reconcile(t.Context(), q)
	if err != nil || answer.Settled != "operator" || !answer.Receipt.Owed {
		t.Fatalf("%+v %v", answer, err)
	}
	q.Observed = "line 1\nline 2\t."
	if !strings.HasPrefix(desk.settled.By, "uid ") {
		t.Errorf("by %q", desk.settled.By)
	}
	q.By = desk.settled.By
	if desk.settled != q {
		t.Errorf("got %+v", desk.settled)
	}
	desk.failWith = problem.New(problem.JobRunning, "it still runs").WithHint("wait")
	_, err = client.Reconcile(t.Context(), q)
	if problem.CodeOf(err) != problem.JobRunning || problem.Outer(err).Hint != "wait" {
		t.Errorf("%v", err)
	}
}

func TestReceiptsRefuseBadFields(t *testing.T) {
	a, desk := newDeskAPI(t)
	for _, c := range []struct{ entry, body string }{
		{"receipts_list", `{"status":"lost"}`},
		{"receipts_list", `{"code":"no_such_code"}`},
		{"receipts_list", `{"target":"web*"}`},
		{"receipts_list", `{"limit":10001}`},
		{"receipts_list", `{"limits":1}`},
		{"receipts_show", `{}`},
		{"receipts_show", `{"request":"x"}`},
		{"receipts_show", `{"request":"` + requestA + `","source":"yes"}`},
		{"evidence", `{"request":7}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"uncertain","reason":"r","observed":"o"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","observed":"o"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","reason":"r"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","reason":"r","observed":"\u0007"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","reason":"r","observed":" \n"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","reason":"r","observed":"` + strings.Repeat("x", httpapi.MaxObserved+1) + `"}`},
		{"reconcile", `{"request":"` + requestA + `","outcome":"failed","reason":"r","observed":"o","by":"root"}`},
	} {
		if g := a.post(t, "/v1/operator/"+c.entry, c.body); g.status != http.StatusBadRequest {
			t.Errorf("%s %.80s: %d %.200s", c.entry, c.body, g.status, g.raw)
		}
	}
	if desk.calls != 0 {
		t.Errorf("%d calls got through", desk.calls)
	}
}

// The exit status of show and evidence is the receipt's own.
func TestReceiptsExitStatuses(t *testing.T) {
	a, desk := newDeskAPI(t)
	for _, c := range []struct{ entry, body, exit string }{
		{"receipts_list", `{"status":"uncertain","target":"web1","code":"no_answer","conflicts":true,"owed":true,"limit":3}`, "0"},
		{"receipts_show", `{"request":"` + strings.ToUpper(requestA) + `","source":true}`, "1"},
		{"evidence", `{"request":"` + requestA + `"}`, "3"},
	} {
		g := a.post(t, "/v1/operator/"+c.entry, c.body)
		if g.status != http.StatusOK || g.header.Get(httpapi.ExitHeader) != c.exit {
			t.Errorf("%s: %d, exit %s: %s", c.entry, g.status, g.header.Get(httpapi.ExitHeader), g.raw)
		}
		if strings.Contains(g.raw, "icket") {
			t.Errorf("%s tells a ticket: %s", c.entry, g.raw)
		}
	}
	want := httpapi.ListQuery{Target: "web1", Status: "uncertain", Code: "no_answer", Conflicts: true, Owed: true, Limit: 3}
	if desk.list != want || !desk.source {
		t.Errorf("%+v, source %v", desk.list, desk.source)
	}
}
