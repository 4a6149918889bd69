package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/oduflow/oduflow-salt/internal/problem"
)

// MaxErrors is how many refusals of a source one answer lists.
const MaxErrors = 20

// retryAfter is what Retry-After says, in seconds.
const retryAfter = 5

type errorJSON struct {
	Code    problem.Code `json:"code"`
	Message string       `json:"message"`
	Hint    *string      `json:"hint"`
	Line    *int         `json:"line"`
	Column  *int         `json:"column"`
}

type failureJSON struct {
	Error  errorJSON   `json:"error"`
	Errors []errorJSON `json:"errors,omitempty"` // of a source, all of them; Error is the first
}

func errorOf(e *problem.Error) errorJSON {
	j := errorJSON{Code: e.Code, Message: e.Message}
	if e.Hint != "" {
		j.Hint = &e.Hint
	}
	if e.Line > 0 {
		j.Line, j.Column = &e.Line, &e.Column
	}
	return j
}

func errorsOf(list []*problem.Error) []errorJSON {
	out := make([]errorJSON, 0, len(list))
	for _, e := range list {
		if len(out) == MaxErrors {
			break
		}
		out = append(out, errorOf(e))
	}
	return out
}

// fail answers with an error. The status, the exit status and Retry-After come
// from the table; no handler chooses one.
func (c *call) fail(err error) {
	outer := problem.Outer(err)
	if !problem.Known(outer.Code) {
		// A code outside the table is a defect of ours, and its text was
		// never reviewed for the outside.
		outer = problem.Outer(errors.New("unknown code"))
	}
	row := problem.RowOf(outer.Code)
	c.code = outer.Code
	if row.HTTP >= http.StatusInternalServerError && row.HTTP != http.StatusServiceUnavailable {
		c.log.Error("call failed inside", "path", c.path, "error", err)
	}
	body := failureJSON{Error: errorOf(outer)}
	if row.Kind == problem.KindSource {
		body.Errors = errorsOf(problemsIn(err))
	}
	c.setRetryAfter(row)
	c.send(answerStatus(row), row.Exit, body)
}

// answerStatus is the HTTP status of an error answer. Codes of receipts travel
// in receipts, with 200; as an error of a call each of them would be a defect.
func answerStatus(row problem.Row) int {
	if row.HTTP < http.StatusBadRequest {
		return http.StatusInternalServerError
	}
	return row.HTTP
}

// problemsIn gives every problem in a tree of joined errors, in order.
func problemsIn(err error) []*problem.Error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*problem.Error
		for _, e := range joined.Unwrap() {
			all = append(all, problemsIn(e)...)
		}
		return all
	}
	var e *problem.Error
	if errors.As(err, &e) {
		return []*problem.Error{e}
	}
	return nil
}

// setRetryAfter says when the same call may succeed, where it may.
func (c *call) setRetryAfter(row problem.Row) {
	if row.Retry {
		c.w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
}
