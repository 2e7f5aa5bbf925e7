package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCustomersBalance(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	api.as(t, "op_good")
	customer := object{
		"id": "cust_1", "name": "Acme", "currency": "EUR", "balance": "10.00", "held": "0.60", "available": "9.40", "available_micros": 9_400_000,
		"live_calls": 2, "created_at": "2026-01-02T00:00:00Z",
	}
	api.says("GET /customers/cust_1", 200, customer)
	lines := strings.Split(strings.TrimSpace(runs(t, 0, "customers", "balance", "cust_1").out), "\n")
	require.Len(t, lines, 2)
	require.Equal(t, []string{"ID", "BALANCE", "HELD", "AVAILABLE", "CURRENCY"}, strings.Fields(lines[0]))
	require.Equal(t, []string{"cust_1", "10.00", "0.60", "9.40", "EUR"}, strings.Fields(lines[1]))
	require.Contains(t, runs(t, 0, "customers", "balance", "cust_1", "-o", "wide").out, "Acme")
	require.Equal(t, "cust_1\n", runs(t, 0, "customers", "balance", "cust_1", "-o", "name").out)
	var shown object
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "customers", "balance", "cust_1", "-o", "json").out), &shown))
	require.Equal(t, "9.40", shown["available"])
	runs(t, 1, "customers", "balance", "cust_2")
	runs(t, 2, "customers", "balance")
}
