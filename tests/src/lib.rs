//! Simulated model servers, the test harness and the scenarios.
