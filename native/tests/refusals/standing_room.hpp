// Room in a spool for which a thread waits as long as a test wants.
#pragma once

// One at a time. Who stands there holds all locks that the library holds as it asks for room.
class StandingRoom {
  public:
    StandingRoom();
    ~StandingRoom();  // whoever stands goes on
    StandingRoom(const StandingRoom&) = delete;
    StandingRoom& operator=(const StandingRoom&) = delete;

    void stand_here() const;         // the calling thread, when it asks for room the next time
    void wait_for_a_thread() const;  // until one stands
};
