// Package version says which build this is. Both values are set with
// `-ldflags "-X ..."`; nothing else may change them.
package version

// Version is the version of every program of this repository.
var Version = "0.1.0-dev"

// AnswerProtocol makes an executor say another protocol in its answers than it
// speaks. It is empty in every build but those with which tests play an
// executor that is too old.
var AnswerProtocol = ""
