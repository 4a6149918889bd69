// Package state is the state language of Oduflow Salt: plain YAML in, the
// data that Salt would see out, or a clear refusal.
//
// The way of a source, one file a step, all of them pure:
//
//	source.go     bytes -> checked text: size, encoding, Jinja, documents
//	yaml.go       text -> syntax tree; the only file that knows a YAML library
//	resolve.go    syntax tree -> values, as Salt's own loader gives them
//	check.go      values -> Document: IDs, functions, arguments, requisites
//	canonical.go  Document -> canonical bytes and digest; decode.go is the way back
//	high.go       Document -> high data for the fixed state.high
//	account.go    Document -> expected results, and what a run made of them
//
// There is no third outcome: a source has the value that Salt's loader gives
// it, or it is refused with line, column and the way to write it instead. What
// is refused, and why, is listed in docs/state-language.md; the canonical form
// is defined in docs/canonical-form.md.
//
// The package does no I/O, keeps no state and has no clock. Everything that
// comes in is hostile: Parse and Decode never panic, and their time and memory
// are linear in the input, which is bounded.
package state

// Limits of the language. They are part of the contract: raising one is
// harmless for stored digests, lowering one is not.
const (
	// MaxSourceBytes is the size of a source as it came in, BOM and comments
	// included (A6).
	MaxSourceBytes = 64 << 10
	// MaxIDs is the number of state IDs in one document (A6).
	MaxIDs = 100
	// MaxDepth is how deep mappings and lists may nest, the document itself
	// being the first level (A6).
	MaxDepth = 32
	// MaxValues is how many texts, numbers, lists and mappings a document has
	// at most; 64 KiB of ordinary states have a third of that.
	MaxValues = 10000
	// MaxErrors is how many refusals one answer lists.
	MaxErrors = 20
	// MaxCanonicalBytes keeps a sealed message below 256 KiB after base64.
	MaxCanonicalBytes = 150 << 10
	// MaxIDLength is the length of a state ID in characters. Salt's own
	// loader has the same limit for a key that isn't written with "? ".
	MaxIDLength = 1024
)

// Version is the version of the canonical form. It is the first thing in it,
// so another version can never have the same digest.
const Version = 1
