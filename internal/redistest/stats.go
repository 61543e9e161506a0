package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// CommandStats returns how often the server has run each command since it started or since [Server.ResetStats], whoever sent
// it; commands called by scripts are counted too. Names are the server's, in lower case, subcommands as in "client|id".
// The two commands by which this package itself looks ("info" and "config|resetstat") are left out.
// It blocks until the server answers or ctx is done, which ends the test.
func (s *Server) CommandStats(ctx context.Context) map[string]int64 {
	s.t.Helper()
	info, err := ask(ctx, s.Addr(), "INFO", "commandstats")
	if err == nil {
		var stats map[string]int64
		if stats, err = parseCommandStats(info); err == nil {
			return stats
		}
	}
	s.t.Fatalf("redistest: command stats: %v", err)
	return nil
}

// ResetStats sets the server's counts back to zero. It blocks until the server answers or ctx is done, which ends the test.
func (s *Server) ResetStats(ctx context.Context) {
	s.t.Helper()
	_, err := ask(ctx, s.Addr(), "CONFIG", "RESETSTAT")
	s.check("reset stats", err)
}

// FlushAll removes all keys, those of other tests on a shared server included. It blocks until the server answers or ctx is
// done, which ends the test.
func (s *Server) FlushAll(ctx context.Context) {
	s.t.Helper()
	_, err := ask(ctx, s.Addr(), "FLUSHALL")
	s.check("flush", err)
}

// parseCommandStats reads lines like "cmdstat_get:calls=1,usec=2,…".
func parseCommandStats(info string) (map[string]int64, error) {
	stats := make(map[string]int64)
	for line := range strings.Lines(info) {
		name, fields, ok := strings.Cut(strings.TrimSpace(line), ":calls=")
		if !ok {
			continue
		}
		calls, _, _ := strings.Cut(fields, ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		stats[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	delete(stats, "info")
	delete(stats, "config|resetstat")
	return stats, nil
}
