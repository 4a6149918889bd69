// Package minion decides what each message does on a minion: it opens and
// verifies it, asks the ledger, and talks with the Salt process (the shim
// salt/_modules/oduflow.py) that spawned the executor.
//
// The shim holds no policy and sees no key: it tells facts, takes the lease
// when it is asked to, runs the high data that it is given, and returns to
// Salt the text that it is given. The conversation is one JSON object a line
// over the executor's stdin and stdout:
//
//	shim      {"v":1,"message":TEXT,"facts":{...}}
//	executor  {"do":"facts"}                         start only; the shim marks its job as a state run first
//	shim      {"facts":{...}}
//	executor  {"do":"lease","request":UUID,"wait_s":10}
//	shim      {"lease":"held"} or {"lease":"busy"}
//	executor  {"do":"run","request":UUID,"high":{...}}
//	shim      {"kind":"map","results":[[KEY,"true"|"false"|"null"|"other"],...]} or {"kind":...}
//	executor  {"do":"return","text":TEXT}            ends every conversation
//
// Where the shim is gone the executor reads the end of its stdin and stops at
// once, with nothing finished. Where the executor is gone the shim runs
// nothing, since it runs only what it is told to.
package minion
