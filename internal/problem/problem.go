// Package problem holds the one error type of this project and the closed
// list of its codes. It imports the standard library only, so that every other
// package can use it.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Code is a stable, machine-readable name for what went wrong. Callers may
// compare it; its text never changes once released.
type Code string

// Error is what every package returns for something a caller, an operator or
// an author can act on.
//
// Message is for the outside: it never holds source, payload, pillar, output
// or secrets. Cause is for the log only. Hint says what to do. Line and Column
// count from 1 and are 0 where no position applies; Column counts characters,
// not bytes.
type Error struct {
	Code    Code
	Message string
	Hint    string
	Line    int
	Column  int
	Cause   error
}

// New makes an Error without a cause.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes an Error whose cause goes to the log and never outside.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// WithHint returns a copy of e that says what to do.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// At returns a copy of e that points at a position in a source.
func (e *Error) At(line, column int) *Error {
	c := *e
	c.Line, c.Column = line, column
	return &c
}

// Error is the inner text: code, message and cause, for logs.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Line > 0 {
		fmt.Fprintf(&b, " (line %d, column %d)", e.Line, e.Column)
	}
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf gives the code of the first Error in err's chain, Internal for any
// other error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// Outer gives the part of err that may leave the process: the first Error in
// its chain without its cause, or a bare Internal for anything else.
func Outer(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		c := *e
		c.Cause = nil
		return &c
	}
	return New(Internal, "something went wrong inside; the log has the details")
}
