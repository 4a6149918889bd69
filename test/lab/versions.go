package lab

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed salt-versions.txt
var versionsFile string

// release is one line of salt-versions.txt.
type release struct {
	line         string   // "3006"
	requirements []string // pip requirements, Salt first
}

// version is the exact Salt release, "3006.29".
func (r release) version() string {
	return strings.TrimPrefix(r.requirements[0], "salt==")
}

// Lines returns the Salt lines that the lab can start, in the order of salt-versions.txt.
func Lines() []string {
	releases, err := parseVersions(versionsFile)
	if err != nil {
		panic(err) // the file is compiled in, and a test parses it
	}
	lines := make([]string, 0, len(releases))
	for _, r := range releases {
		lines = append(lines, r.line)
	}
	return lines
}

func findRelease(line string) (release, error) {
	releases, err := parseVersions(versionsFile)
	if err != nil {
		return release{}, err
	}
	i := slices.IndexFunc(releases, func(r release) bool { return r.line == line })
	if i < 0 {
		return release{}, fmt.Errorf("no Salt line %q in salt-versions.txt, which has %s", line, strings.Join(Lines(), ", "))
	}
	return releases[i], nil
}

func parseVersions(text string) ([]release, error) {
	var releases []release
	for n, row := range strings.Split(text, "\n") {
		row, _, _ = strings.Cut(row, "#")
		fields := strings.Fields(row)
		if len(fields) == 0 {
			continue
		}
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "salt=="+fields[0]+".") {
			return nil, fmt.Errorf("salt-versions.txt line %d: want LINE salt==LINE.N [requirement...]", n+1)
		}
		releases = append(releases, release{line: fields[0], requirements: fields[1:]})
	}
	return releases, nil
}
