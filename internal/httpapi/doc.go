// Package httpapi is the edge of masterd: the fixed entry points, alike over a
// Unix socket and over TLS, and the client of the socket that masterd's own
// commands use. docs/openapi.yaml describes it and is tested against it.
//
// The way of a call, one file a step:
//
//	listen.go    who may connect: folder and socket, TLS, time and size limits
//	peer.go      who is calling, by peer credentials
//	access.go    may they: a token's scope over TLS, an operator's uid
//	server.go    which entry point; log line, panics, headers
//	body.go      bytes -> fields: content type, size, strict JSON
//	fields.go    fields -> checked values, every refusal naming its field
//	service.go   the entry points of callers; operator.go those of operators
//	answer.go    what goes out
//	failure.go   an error -> status and body, by the one table in internal/problem
//
// Nothing decides anything about a request here: shape is checked, and what
// passes goes to the Service. Bodies, sources and tokens reach no log.
package httpapi
