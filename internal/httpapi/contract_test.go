package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/httpapi/token"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/start"
)

// A13: the answer is exactly these keys, all of them, always.
func TestAnswerIsTheDocumentedObject(t *testing.T) {
	a := newAPI(t, nil)
	a.start = func(_ context.Context, r start.CustomRequest) (start.Answer, error) {
		e := aReceipt()
		return start.Answer{
			Revision: 7,
			Request:  r.Request, Reused: true, Execution: e, Status: e.State.Status(), PollAfter: 1500 * time.Millisecond,
			Blocked: &receipt.Blocker{Request: instanceA, Profile: receipt.Configure, Since: e.AcceptedAt},
		}, nil
	}
	g := a.post(t, "/v1/custom_start", startBody(t, nil))
	const want = `{"request":"` + requestA + `","execution":"` + requestA + `","target":"web1","profile":"custom",` +
		`"status":"failed","jid":"20261130180001000000","revision":7,"digest":"dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",` +
		`"counts":{"declared":3,"passed":1,"failed":1,"not_run":1},"preflight":{"passed":1,"total":1},"code":"state_failed","hint":null,` +
		`"blocked_by":{"request":"` + instanceA + `","profile":"configure","since":"2026-11-30T18:00:00.123456Z"},` +
		`"accepted_at":"2026-11-30T18:00:00.123456Z","dispatched_at":"2026-11-30T18:00:01.123456Z",` +
		`"expires_at":"2026-11-30T20:00:51.123456Z","finished_at":"2026-11-30T18:00:02.123456Z","poll_after_s":2,"reused":true}` + "\n"
	if g.raw != want {
		t.Errorf("got  %s\nwant %s", g.raw, want)
	}
	if g.status != http.StatusOK || g.header.Get(httpapi.ExitHeader) != "1" {
		t.Errorf("status %d, exit %q", g.status, g.header.Get(httpapi.ExitHeader))
	}
	if g.header.Get("Cache-Control") != "no-store" || g.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", g.header)
	}
}

// A13: what isn't known yet is null, not missing.
func TestAnswerOfAQueuedReceiptHasAllKeys(t *testing.T) {
	a := newAPI(t, nil)
	full := aReceipt()
	a.status = func(_ context.Context, request string, _ time.Duration) (start.Answer, error) {
		r := receipt.Receipt{Binding: full.Binding, State: receipt.Queued}
		return start.Answer{Request: request, Execution: r, Status: receipt.StatusQueued, PollAfter: time.Second}, nil
	}
	g := a.post(t, "/v1/custom_status", `{"request":"`+requestA+`"}`)
	for _, key := range []string{"jid", "code", "blocked_by", "dispatched_at", "finished_at"} {
		if value, there := g.body[key]; !there || value != nil {
			t.Errorf("%s is %v, there: %v; want null", key, value, there)
		}
	}
	if len(g.body) != 19 {
		t.Errorf("%d keys, want 19: %s", len(g.body), g.raw)
	}
}

// The exit status of a receipt's answer comes from its status, for every state.
func TestExitOfEveryReceiptState(t *testing.T) {
	a := newAPI(t, nil)
	want := map[receipt.State]int{
		receipt.Queued: 0, receipt.Dispatching: 0, receipt.Dispatched: 0, receipt.Succeeded: 0,
		receipt.Refused: 1, receipt.Failed: 1, receipt.Uncertain: 3,
	}
	for _, state := range receipt.States() {
		exit, ok := want[state]
		if !ok {
			t.Errorf("no exit status is decided for state %s", state)
			continue
		}
		a.status = func(_ context.Context, request string, _ time.Duration) (start.Answer, error) {
			r := aReceipt()
			r.State = state
			return start.Answer{Request: request, Execution: r, Status: state.Status()}, nil
		}
		g := a.post(t, "/v1/custom_status", `{"request":"`+requestA+`"}`)
		if g.status != http.StatusOK || g.header.Get(httpapi.ExitHeader) != strconv.Itoa(exit) {
			t.Errorf("%s: status %d, exit %s, want 200 and %d", state, g.status, g.header.Get(httpapi.ExitHeader), exit)
		}
	}
}

// Every code of the one table goes out with its status and its exit status.
func TestEveryCodeGoesOutByTheTable(t *testing.T) {
	a := newAPI(t, nil)
	for _, row := range problem.Table() {
		t.Run(string(row.Code), func(t *testing.T) {
			a.start = func(context.Context, start.CustomRequest) (start.Answer, error) {
				return start.Answer{}, fmt.Errorf("outer: %w", problem.Wrap(row.Code, errors.New(hidden), "what").WithHint("do").At(3, 4))
			}
			g := a.post(t, "/v1/custom_start", startBody(t, nil))
			wantStatus := row.HTTP
			if wantStatus < 400 {
				wantStatus = 500 // a receipt's code as an error of a call is a defect
			}
			if g.status != wantStatus || g.code() != string(row.Code) || g.header.Get(httpapi.ExitHeader) != strconv.Itoa(row.Exit) {
				t.Errorf("status %d, code %s, exit %s; want %d, %d", g.status, g.code(), g.header.Get(httpapi.ExitHeader), wantStatus, row.Exit)
			}
			if (g.header.Get("Retry-After") != "") != row.Retry {
				t.Errorf("Retry-After %q, the table says retry: %v", g.header.Get("Retry-After"), row.Retry)
			}
			if row.Retry && wantStatus != 503 {
				t.Errorf("the table says retry for status %d", wantStatus)
			}
			if strings.Contains(g.raw, hidden) {
				t.Error("the cause went outside")
			}
			e := g.body["error"].(map[string]any)
			if e["line"] != 3.0 || e["column"] != 4.0 || e["hint"] != "do" || e["message"] != "what" || len(e) != 5 {
				t.Errorf("error is %v", e)
			}
			if _, list := g.body["errors"]; list != (row.Kind == problem.KindSource) {
				t.Errorf("errors is there: %v", list)
			}
		})
	}
}

func TestErrorsThatAreNoProblemsStayInside(t *testing.T) {
	a := newAPI(t, nil)
	for name, err := range map[string]error{
		"plain":        errors.New(hidden),
		"unknown code": problem.New("made_up", hidden),
	} {
		a.start = func(context.Context, start.CustomRequest) (start.Answer, error) { return start.Answer{}, err }
		g := a.post(t, "/v1/custom_start", startBody(t, nil))
		if g.status != 500 || g.code() != "internal" || strings.Contains(g.raw, hidden) {
			t.Errorf("%s: status %d, body %s", name, g.status, g.raw)
		}
	}
}

// A bad source is 422 with all that is wrong with it, the first as error.
func TestStartWithABadSourceListsTheErrors(t *testing.T) {
	a := newAPI(t, nil)
	a.start = func(context.Context, start.CustomRequest) (start.Answer, error) {
		var all []error
		for i := range 25 {
			all = append(all, problem.New(problem.BadScalar, "e%d", i).At(i+1, 1))
		}
		return start.Answer{}, errors.Join(all...)
	}
	g := a.post(t, "/v1/custom_start", startBody(t, nil))
	list, _ := g.body["errors"].([]any)
	if g.status != 422 || len(list) != httpapi.MaxErrors || g.message() != "e0" {
		t.Errorf("status %d, %d errors, first %q", g.status, len(list), g.message())
	}
	if list[19].(map[string]any)["line"] != 20.0 {
		t.Errorf("the last one is %v", list[19])
	}
}

// A validation that finds errors is a successful validation.
func TestValidateAnswers200ForABadSource(t *testing.T) {
	a := newAPI(t, nil)
	a.validate = func([]byte) start.Validation {
		return start.Validation{Errors: []*problem.Error{problem.New(problem.Jinja, "no").At(2, 3)}}
	}
	g := a.post(t, "/v1/state_validate", `{"source":"a"}`)
	const want = `{"ok":false,"digest":null,"states":0,"errors":[{"code":"jinja","message":"no","hint":null,"line":2,"column":3}],"warnings":[]}` + "\n"
	if g.status != 200 || g.raw != want || g.header.Get(httpapi.ExitHeader) != "2" {
		t.Errorf("status %d, exit %s, %s", g.status, g.header.Get(httpapi.ExitHeader), g.raw)
	}
}

func TestStartPassesOnWhatWasSent(t *testing.T) {
	a := newAPI(t, nil)
	g := a.post(t, "/v1/custom_start", startBody(t, map[string]any{
		"request": strings.ToUpper(requestA), "instance": strings.ToUpper(instanceA), "target": "Web_1.example.com",
		"source": "a: \U0001F600 ü\n", "revision": 1 << 53, "digest": strings.Repeat("AB", 32), "previous": strings.ToUpper(instanceA),
		"again": true, "requester": "anna@example.com", "accept_until": "2026-11-30T19:00:00.5+01:00",
	}))
	if g.status != 200 {
		t.Fatalf("status %d: %s", g.status, g.raw)
	}
	want := start.CustomRequest{
		Request: requestA, Instance: instanceA, Target: "Web_1.example.com", Source: []byte("a: \U0001F600 ü\n"), Revision: 1 << 53,
		Digest: strings.Repeat("ab", 32), Previous: instanceA, Again: true, Requester: "anna@example.com",
		AcceptUntil: time.Date(2026, 11, 30, 18, 0, 0, 5e8, time.UTC),
	}
	got := a.starts[0]
	if !bytes.Equal(got.Source, want.Source) || !got.AcceptUntil.Equal(want.AcceptUntil) {
		t.Errorf("source %q, accept_until %v", got.Source, got.AcceptUntil)
	}
	got.Source, want.Source, got.AcceptUntil, want.AcceptUntil = nil, nil, time.Time{}, time.Time{}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// JSON Schema's integers are 7.0 too.
func TestRevisionMayBeWrittenAsAFloat(t *testing.T) {
	a := newAPI(t, nil)
	body := strings.Replace(startBody(t, nil), `"revision":7`, `"revision":7.00`, 1)
	if g := a.post(t, "/v1/custom_start", body); g.status != 200 || a.starts[0].Revision != 7 {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
}

// A year before 1970 is a time that has passed, not one that wasn't given.
func TestAcceptUntilAtTheZeroTimeIsGiven(t *testing.T) {
	a := newAPI(t, nil)
	if g := a.post(t, "/v1/custom_start", startBody(t, map[string]any{"accept_until": "0001-01-01T00:00:00Z"})); g.status != 200 {
		t.Fatalf("status %d: %s", g.status, g.raw)
	}
	if a.starts[0].AcceptUntil.IsZero() {
		t.Error("accept_until was lost")
	}
}

type badInput struct {
	name   string
	path   string
	body   string
	status int
	code   problem.Code
	says   string // part of the message
}

func badInputs(t *testing.T) []badInput {
	field := func(name string, value any, says string) badInput {
		return badInput{fmt.Sprintf("%s=%v", name, value), "/v1/custom_start", startBody(t, map[string]any{name: value}), 400, problem.BadField, says}
	}
	var all []badInput
	raw := func(name, body string, code problem.Code, says string) {
		all = append(all, badInput{name, "/v1/custom_start", body, 400, code, says})
	}
	raw("empty", "", problem.BadRequest, "JSON")
	raw("not JSON", "request=1", problem.BadRequest, "at byte 1")
	raw("HTML", "<html>", problem.BadRequest, "JSON")
	raw("cut off", `{"request": "`, problem.BadRequest, "JSON")
	raw("a list", `[]`, problem.BadRequest, "object")
	raw("a string", `"x"`, problem.BadRequest, "object")
	raw("null", `null`, problem.BadRequest, "object")
	raw("trailing data", startBody(t, nil)+"{}", problem.BadRequest, "JSON")
	raw("NUL after the end", startBody(t, nil)+"\x00", problem.BadRequest, "JSON")
	raw("invalid UTF-8", strings.Replace(startBody(t, nil), "test.nop", "test.nop\xff", 1), problem.BadRequest, "UTF-8")
	raw("lone high surrogate", strings.Replace(startBody(t, nil), "test.nop", `\ud83d`, 1), problem.BadRequest, "surrogate")
	raw("lone low surrogate", strings.Replace(startBody(t, nil), "test.nop", `\uDE00x`, 1), problem.BadRequest, "surrogate")
	raw("two highs", strings.Replace(startBody(t, nil), "test.nop", `\ud83d\ud83d\ude00`, 1), problem.BadRequest, "surrogate")
	raw("BOM", "\ufeff"+startBody(t, nil), problem.BadRequest, "JSON")
	raw("duplicate key", strings.Replace(startBody(t, nil), `{`, `{"target":"web2",`, 1), problem.BadRequest, "target is there twice")
	raw("duplicate key, escaped", strings.Replace(startBody(t, nil), `{`, `{"t\u0061rget":"web2",`, 1), problem.BadRequest, "target is there twice")
	raw("deep nesting", strings.Repeat(`{"source":`, 20000), problem.BadRequest, "JSON")
	raw("unknown field", strings.Replace(startBody(t, nil), `{`, `{"fun":"cmd.run",`, 1), problem.UnknownField, `"fun"`)
	raw("another case", strings.Replace(startBody(t, nil), `"target"`, `"Target"`, 1), problem.UnknownField, `"Target"`)
	raw("hostile name", strings.Replace(startBody(t, nil), `{`, `{"\u001b[2J`+strings.Repeat("x", 500)+`":1,`, 1), problem.UnknownField, `...`)
	for _, name := range []string{"request", "target", "instance", "source", "revision"} {
		all = append(all, field(name, nil, name+" is missing"))
		raw(name+" null", strings.Replace(startBody(t, map[string]any{name: nil}), `{`, `{"`+name+`":null,`, 1), problem.BadField, name+" is null")
		all = append(all, field(name, []int{1}, name+" is a list or an object"), field(name, map[string]int{}, name+" is a list or an object"))
	}
	for _, name := range []string{"request", "target", "instance", "source", "digest", "previous", "requester", "accept_until"} {
		all = append(all, field(name, 1, name+" isn't a string"), field(name, true, name+" isn't a string"))
	}
	for _, name := range []string{"request", "instance", "previous"} {
		for _, bad := range []string{
			"", "x", "{" + requestA + "}", "urn:uuid:" + requestA, strings.ReplaceAll(requestA, "-", ""), requestA + " ", " " + requestA,
			requestA[:35] + "g", requestA[:35] + "\u0661", requestA + "\n", strings.Replace(requestA, "-", "_", 1),
		} {
			all = append(all, field(name, bad, name+" isn't a UUID"))
		}
	}
	all = append(all, field("previous", requestA, "names the request itself"))
	for _, bad := range []string{
		"", "*", "web*", "web?", "web[12]", "web1,web2", "web1 web2", " web1", "web1 ", "-web1", ".web1", "../x", "a/b", `a\b`,
		"web1\n", "web1\x00", "G@os:Debian and *", "E@web.*", "!web", "S@10.0.0.0/8", "wéb", "web{1}", "we%62", "a|b", "a;b", "a$b", "a`b", "a'b",
		"@a", ":a", "+a",
	} {
		all = append(all, field("target", bad, "target isn't one literal minion ID"))
	}
	all = append(all, field("target", strings.Repeat("a", 254), "253"))
	for _, bad := range []any{"7", -1, 1.5, int64(1<<53 + 1), true} {
		all = append(all, field("revision", bad, "revision isn't a"))
	}
	for _, bad := range []string{"7.5", "7.01", "7e0", "7.0e1", "-0", "-0.0", "1E2", "99999999999999999999"} {
		raw("revision "+bad, strings.Replace(startBody(t, nil), `"revision":7`, `"revision":`+bad, 1), problem.BadField, "revision isn't an integer")
	}
	for _, bad := range []string{"", "abc", strings.Repeat("a", 63), strings.Repeat("a", 65), strings.Repeat("g", 64), "sha256:" + strings.Repeat("a", 57)} {
		all = append(all, field("digest", bad, "digest isn't"))
	}
	for _, bad := range []any{"true", 1, 0, "yes"} {
		all = append(all, field("again", bad, "again isn't true or false"))
	}
	for _, bad := range []string{"", strings.Repeat("a", 65), "a\nb", "a\tb", "<b>", "ä", "a;b", `a"b`} {
		all = append(all, field("requester", bad, "requester has"))
	}
	for _, bad := range []string{
		"", "now", "2026-11-30", "2026-11-30 18:00:00Z", "2026-11-30T18:00:00", "2026-11-30T18:00Z", "1764525600",
		"2026-02-30T18:00:00Z", "2026-11-30T25:00:00Z", "2026-11-30T18:00:00,5Z", "2026-11-30T8:00:00Z", "2026-11-30T18:00:00+25:00",
	} {
		all = append(all, field("accept_until", bad, "accept_until isn't a time"))
	}
	for name, says := range map[string]string{
		`{}`:              "request is missing",
		`{"request":"x"}`: "request isn't a UUID",
		`{"request":"` + requestA + `","wait_s":31}`:   "wait_s isn't an integer from 0 to 30",
		`{"request":"` + requestA + `","wait_s":-1}`:   "wait_s isn't an integer",
		`{"request":"` + requestA + `","wait_s":"5"}`:  "wait_s isn't a number",
		`{"request":"` + requestA + `","wait_s":null}`: "wait_s is null",
		`{"request":"` + requestA + `","wait_s":1.5}`:  "wait_s isn't an integer",
	} {
		all = append(all, badInput{"status " + name, "/v1/custom_status", name, 400, problem.BadField, says})
	}
	all = append(all,
		badInput{"status with source", "/v1/custom_status", `{"request":"` + requestA + `","source":""}`, 400, problem.UnknownField, `"source"`},
		badInput{"validate nothing", "/v1/state_validate", `{}`, 400, problem.BadField, "source is missing"},
		badInput{"validate a number", "/v1/state_validate", `{"source":1}`, 400, problem.BadField, "source isn't a string"},
		badInput{"adopt without reason", "/v1/operator/adopt", `{"target":"a","instance":"` + instanceA + `"}`, 400, problem.BadField, "reason is missing"},
		badInput{"adopt with an empty reason", "/v1/operator/adopt", `{"target":"a","instance":"` + instanceA + `","reason":"  "}`, 400, problem.BadField, "reason begins"},
		badInput{"adopt with two lines", "/v1/operator/adopt", `{"target":"a","instance":"` + instanceA + `","reason":"a\nb"}`, 400, problem.BadField, "reason has a control"},
		badInput{"adopt a glob", "/v1/operator/adopt", `{"target":"*","instance":"` + instanceA + `","reason":"x"}`, 400, problem.BadField, "target isn't"},
		badInput{"adopt by somebody else", "/v1/operator/adopt", `{"target":"a","instance":"` + instanceA + `","reason":"x","by":"root"}`, 400, problem.UnknownField, `"by"`},
		badInput{"token of no scope", "/v1/operator/token_create", `{"scope":"root","name":"a"}`, 400, problem.BadField, "scope isn't"},
		badInput{"token without a name", "/v1/operator/token_create", `{"scope":"custom"}`, 400, problem.BadField, "name is missing"},
		badInput{"revoke a text", "/v1/operator/token_revoke", `{"id":"odf_0123"}`, 400, problem.BadField, "id isn't"},
		badInput{"list with a filter", "/v1/operator/token_list", `{"scope":"custom"}`, 400, problem.UnknownField, `"scope"`},
	)
	return all
}

// Bad input: a clear error with a stable code that names the field, and
// nothing gets as far as the service.
func TestBadInput(t *testing.T) {
	a := newAPI(t, nil)
	for _, in := range badInputs(t) {
		t.Run(in.name, func(t *testing.T) {
			g := a.post(t, in.path, in.body)
			if g.status != in.status || g.code() != string(in.code) {
				t.Errorf("status %d, code %s; want %d, %s: %s", g.status, g.code(), in.status, in.code, g.raw)
			}
			if !strings.Contains(g.message(), in.says) {
				t.Errorf("message %q doesn't say %q", g.message(), in.says)
			}
			if strings.ContainsAny(g.message(), "\x1b\n") {
				t.Errorf("message %q steers a terminal", g.message())
			}
			if g.header.Get(httpapi.ExitHeader) != strconv.Itoa(problem.ExitUsage) {
				t.Errorf("exit %s", g.header.Get(httpapi.ExitHeader))
			}
		})
	}
	if n := a.reached(); n != 0 {
		t.Errorf("%d calls got to the service", n)
	}
}

func TestGoodTargetsAndLabels(t *testing.T) {
	a := newAPI(t, nil)
	for _, target := range []string{"a", "web1", "web-1.example.com", "WEB_1", "_x", "user@host", "fe80:1", "a+b", strings.Repeat("a", 253), "..a"[2:]} {
		if g := a.post(t, "/v1/custom_start", startBody(t, map[string]any{"target": target})); g.status != 200 {
			t.Errorf("%q: %s", target, g.raw)
		}
	}
	for _, requester := range []string{"Anna Berg", "odoo:res.users/7", "a"} {
		if g := a.post(t, "/v1/custom_start", startBody(t, map[string]any{"requester": requester})); g.status != 200 {
			t.Errorf("%q: %s", requester, g.raw)
		}
	}
}

func TestContentType(t *testing.T) {
	a := newAPI(t, nil)
	for value, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, `Application/JSON;charset="UTF-8"`: true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false,
		"application/json; charset=latin-1": false, "application/json; profile=x": false, "application/jsonx": false,
		"application/json, text/plain": false, "application/yaml": false, ";;": false,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://masterd/v1/custom_start", strings.NewReader(startBody(t, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if value != "" {
			r.Header.Set("Content-Type", value)
		}
		g := send(t, a.unix, r)
		if ok != (g.status == 200) || !ok && (g.status != 415 || g.code() != "unsupported_type") {
			t.Errorf("%q: status %d, code %s", value, g.status, g.code())
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://masterd/v1/custom_start", strings.NewReader(startBody(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	if g := send(t, a.unix, r); g.status != 415 {
		t.Errorf("gzip: status %d", g.status)
	}
}

func TestPathsAndMethods(t *testing.T) {
	a := newAPI(t, nil)
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/", 404, "not_found", ""},
		{"GET", "/v1", 404, "not_found", ""},
		{"POST", "/v1/custom_start/", 404, "not_found", ""},
		{"POST", "//v1/custom_start", 404, "not_found", ""},
		{"POST", "/v1/../v1/custom_start", 404, "not_found", ""},
		{"POST", "/v1/configure_start", 404, "not_found", ""},
		{"POST", "/v1/cmd.run", 404, "not_found", ""},
		{"GET", "/v1/custom_start", 405, "method_not_allowed", "POST"},
		{"PUT", "/v1/custom_status", 405, "method_not_allowed", "POST"},
		{"OPTIONS", "/v1/state_validate", 405, "method_not_allowed", "POST"},
		{"BREW", "/v1/state_validate", 405, "method_not_allowed", "POST"},
		{"POST", "/v1/health", 405, "method_not_allowed", "GET"},
		{"GET", "/v1/health?verbose=1", 400, "bad_request", ""},
		{"GET", "/v1/health", 200, "", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://masterd", nil)
		if err != nil {
			t.Fatal(err)
		}
		path, query, _ := strings.Cut(c.path, "?")
		r.URL.Path, r.URL.RawQuery = path, query
		g := send(t, a.unix, r)
		if g.status != c.status || g.code() != c.code || g.header.Get("Allow") != c.allow {
			t.Errorf("%s %s: status %d, code %s, Allow %q", c.method, c.path, g.status, g.code(), g.header.Get("Allow"))
		}
	}
}

// endless is a body that counts what was read of it.
type endless struct{ left, read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	for i := range n {
		p[i] = ' '
	}
	e.left -= n
	e.read += n
	return n, nil
}

// A 10 MB body is refused, and most of it is never read, with a length and without.
func TestTenMegabytesAreRefusedUnread(t *testing.T) {
	toks := newTokens(t)
	handler := httpapi.NewHandler(httpapi.Config{Service: &service{}, Tokens: toks, Now: realNow})
	for _, length := range []int64{10 << 20, -1} {
		body := &endless{left: 10 << 20}
		w := newRecorder()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/custom_start", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+toks.text[token.Custom])
		handler.ServeHTTP(w, r)
		if w.status != 413 || !strings.Contains(w.body.String(), `"too_large"`) {
			t.Errorf("status %d: %s", w.status, w.body.String())
		}
		if most := 1<<20 + 64<<10; body.read > most {
			t.Errorf("%d bytes were read, want at most %d", body.read, most)
		}
	}
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder                    { return &recorder{header: http.Header{}} }
func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// The same over a real socket: the answer arrives though the body isn't taken.
func TestTenMegabytesOverTheSocket(t *testing.T) {
	a := newAPI(t, nil)
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "POST /v1/custom_start HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 10<<20); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // the server closes: it read one byte of the body and wants no more
	if err != nil || !strings.Contains(string(answer), "413 Request Entity Too Large") || !strings.Contains(string(answer), "too_large") {
		t.Errorf("%v: %s", err, answer)
	}
}

func TestSourceAtItsLimitFitsTheBody(t *testing.T) {
	a := newAPI(t, nil)
	// 64 KiB of a character that JSON writes in six bytes.
	source := strings.Repeat("\x01", 64<<10)
	if g := a.post(t, "/v1/custom_start", startBody(t, map[string]any{"source": source})); g.status != 200 {
		t.Fatalf("status %d: %s", g.status, g.raw)
	}
	if string(a.starts[0].Source) != source {
		t.Error("the source arrived changed")
	}
}

func TestHealthSaysWhatItKnows(t *testing.T) {
	a := newAPI(t, nil)
	a.healthy = &start.Health{Version: "1.2.3", Code: problem.Deaf, Epoch: "e1", Queued: 1, Running: 2, Uncertain: 3, Conflicts: 6, Owed: 7, BadAnswers: 4, Gaps: 5}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://masterd/v1/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	g := send(t, a.unix, r)
	const want = `{"ok":false,"version":"1.2.3","code":"deaf","epoch":"e1","bus_joined":false,"queued":1,"running":2,"uncertain":3,"conflicts":6,"owed":7,"bad_answers":4,"gaps":5,"refused_connections":0}` + "\n"
	if g.status != 503 || g.raw != want || g.header.Get("Retry-After") == "" || g.header.Get(httpapi.ExitHeader) != "7" {
		t.Errorf("status %d, %v: %s", g.status, g.header, g.raw)
	}
	if r, err = http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+"/v1/health", nil); err != nil {
		t.Fatal(err)
	}
	if g = send(t, a.tls, r); g.status != 503 || g.raw != "{\"ok\":false}\n" {
		t.Errorf("without a token: status %d: %s", g.status, g.raw)
	}
	r.Header.Set("Authorization", "Bearer "+a.tokens.text[token.Validate])
	if g = send(t, a.tls, r); g.raw != want {
		t.Errorf("with a token: %s", g.raw)
	}
	r.Header.Set("Authorization", "Bearer nonsense")
	if g = send(t, a.tls, r); g.status != 401 {
		t.Errorf("with a wrong token: status %d", g.status)
	}
}

// A defect is answered, its text stays inside, and the next call works.
func TestPanicIsInternal(t *testing.T) {
	a := newAPI(t, nil)
	a.start = func(_ context.Context, r start.CustomRequest) (start.Answer, error) {
		return start.Answer{Request: strings.Fields(hidden)[len(r.Request)]}, nil // beyond its end
	}
	g := a.post(t, "/v1/custom_start", startBody(t, nil))
	if g.status != 500 || g.code() != "internal" {
		t.Errorf("status %d: %s", g.status, g.raw)
	}
	a.start = nil
	if g = a.post(t, "/v1/custom_start", startBody(t, nil)); g.status != 200 {
		t.Errorf("afterwards: status %d", g.status)
	}
	if log := a.log.String(); !strings.Contains(log, "call panicked") || !strings.Contains(log, "contract_test.go") {
		t.Error("the log doesn't say where")
	}
}

// A7: one line a call, with identity and code, and nothing of body or token.
func TestLogsHoldIdentityAndNothingElse(t *testing.T) {
	a := newAPI(t, nil)
	text := a.tokens.text[token.Custom]
	a.start = func(context.Context, start.CustomRequest) (start.Answer, error) {
		return start.Answer{}, problem.New(problem.BadScalar, "no")
	}
	a.postTLS(t, "/v1/custom_start", "Bearer "+text, startBody(t, map[string]any{"source": hidden, "requester": "who"}))
	a.postTLS(t, "/v1/custom_start", "Bearer "+text[:len(text)-1]+"0", startBody(t, map[string]any{"source": hidden}))
	a.post(t, "/v1/custom_start", `{"`+hidden+`":1}`)
	a.post(t, "/v1/"+hidden, `{}`)
	a.post(t, "/v1/state_validate", `{"source":"`+hidden+`"}`)
	log := a.log.String()
	for _, secret := range []string{hidden, text, text[4:], strings.Split(text, "_")[2]} {
		if strings.Contains(log, secret) {
			t.Errorf("%q is in the log: %s", secret, log)
		}
	}
	first := map[string]any{}
	if err := json.Unmarshal([]byte(strings.SplitN(log, "\n", 2)[0]), &first); err != nil {
		t.Fatal(err)
	}
	if first["request"] != requestA || first["code"] != "bad_scalar" || first["status"] != 422.0 ||
		first["path"] != "/v1/custom_start" || first["token"] != strings.Split(text, "_")[1] {
		t.Errorf("the line is %v", first)
	}
	if n := strings.Count(log, "\n"); n != 5 {
		t.Errorf("%d lines for 5 calls", n)
	}
}
