package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine left behind fails it
		var out bytes.Buffer
		if err := run(context.Background(), &out); err != nil {
			t.Fatal(err)
		}
		// Row and loss fall due at the same instant, and either may come first.
		want := func(n string) string {
			return "first run: 20 of 20 rows\nsecond run: stopped after " + n + " rows: longest hold reached\n"
		}
		if got := out.String(); got != want("9") && got != want("10") {
			t.Errorf("got:\n%s", got)
		}
	})
}
