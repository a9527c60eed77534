//! Flow control: bands, queues, fairness and shedding.
