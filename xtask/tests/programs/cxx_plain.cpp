// weir.hpp in a program that is built without exceptions and without RTTI.
#include <weir.hpp>

#include <list>
#include <map>

struct Request {
    int number;
    explicit Request(int number) : number(number) {}
};

int main(int count, char **) {
    weir::object_cache<Request> requests("requests");
    const auto request = requests.make(7);
    weir::memory_resource nodes("nodes", 64), heap;
    const std::pmr::list<int> list({1, 2, 3}, &nodes);
    std::map<int, int, std::less<int>, weir::allocator<std::pair<const int, int>>> map;
    map[1] = 2;
    const weir::shrinker shrinker("none", [] { return std::size_t(0); }, [](std::size_t, int) { return std::size_t(0); });
    const weir::pressure_listener listener(WEIR_PRESSURE_SOME, [](const weir_pressure_event &) {});
    weir::page_pool pool("pool");
    const auto run = pool.get(1);
    const bool passed = request->number == 7 && nodes.stats().used == 3 && nodes == nodes && !(nodes == heap) && map[1] == 2;
    // What throws elsewhere ends the program.
    if (count > 1) weir::object_cache<Request>("wrong flags", 1u << 31);
    std::puts(passed ? "all passed" : "failed");
}
